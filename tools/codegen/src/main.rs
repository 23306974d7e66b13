//! Rewrites `protocol/src/messages` from `protocol/schema`.

use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let files = match sakia_codegen::generate() {
        Ok(files) => files,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for file in &files {
        let unchanged = fs::read_to_string(&file.path).is_ok_and(|text| text == file.text);
        if unchanged {
            continue;
        }
        if let Err(error) = fs::write(&file.path, &file.text) {
            eprintln!("{}: {error}", file.path.display());
            return ExitCode::FAILURE;
        }
        println!("{}", file.path.display());
    }
    ExitCode::SUCCESS
}
