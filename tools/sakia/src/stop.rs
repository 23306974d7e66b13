//! What tells a process to stop: a signal, or the end of its standard input.
//!
//! A child of `sakia dev` watches its standard input, a pipe whose other end the parent holds: it is closed when the
//! parent asks for the stop, and by the system when the parent dies in whatever way.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::thread;

use clap::ValueEnum;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether the end of standard input asks for a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Input {
    /// It means nothing.
    Ignored,
    /// It is the parent's word.
    Watched,
}

/// Sends what `say` gives for each SIGTERM and SIGINT, from now on. The handlers replace the system's, which would end
/// the process at once.
pub(crate) fn on_signal<T: Send + 'static>(heard: Sender<T>, say: impl Fn() -> T + Send + 'static) -> io::Result<()> {
    let (mut reader, writer) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGINT, writer.try_clone()?)?;
    signal_hook::low_level::pipe::register(SIGTERM, writer)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut byte = [0];
        while reader.read_exact(&mut byte).is_ok() && heard.send(say()).is_ok() {}
    })?;
    Ok(())
}

/// Sends `word` when standard input ends, if it is watched.
pub(crate) fn on_input_end<T: Send + 'static>(input: Input, heard: Sender<T>, word: T) -> io::Result<()> {
    if input == Input::Ignored {
        return Ok(());
    }
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        // What is typed means nothing; an error is an end too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        // Nobody listens any more when the process ends anyway.
        let _ = heard.send(word);
    })?;
    Ok(())
}
