//! The message files in the repository are what the tables say.

use std::collections::BTreeSet;
use std::fs;

#[test]
fn checked_in_messages_equal_the_generators_output() {
    let files = sakia_codegen::generate().unwrap();
    let mut expected = BTreeSet::new();
    for file in &files {
        let text = fs::read_to_string(&file.path).unwrap_or_default();
        assert!(text == file.text, "{} differs: run `cargo run -p sakia-codegen`", file.path.display());
        expected.insert(file.path.file_name().unwrap().to_owned());
    }
    for entry in fs::read_dir(sakia_codegen::protocol_folder().join("src/messages")).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(expected.contains(&name), "{} has no table", name.display());
    }
}
