//! The three exit codes: 0 fine, 1 signature found under `--fail-on`, 2 error.

use std::io::Write as _;
use std::process::ExitCode;

/// How a verb ended when nothing stopped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All is well.
    Fine,
    /// A signature that `--fail-on` names was found.
    #[cfg(feature = "analyze")]
    Found,
    /// Results were printed, but part of the input was bad; the reasons are on stderr already.
    #[cfg(any(feature = "analyze", feature = "vote"))]
    BadInput,
}

/// The process's exit code; an error is printed to stderr with its causes.
pub(crate) fn code(outcome: anyhow::Result<End>) -> ExitCode {
    match outcome {
        Ok(End::Fine) => ExitCode::SUCCESS,
        #[cfg(feature = "analyze")]
        Ok(End::Found) => ExitCode::from(1),
        #[cfg(any(feature = "analyze", feature = "vote"))]
        Ok(End::BadInput) => ExitCode::from(2),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        // Only writes to stdout are passed on without a word of their own.
        Err(error) if error.chain().count() == 1 && error.is::<std::io::Error>() => {
            let _ = writeln!(anstream::stderr(), "error: cannot write the results to stdout: {error}");
            ExitCode::from(2)
        }
        Err(error) => {
            // Nobody is left to tell when stderr itself is gone.
            let _ = writeln!(anstream::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// A reader such as `head` has left: that is its right, not an error.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
