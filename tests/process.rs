//! Processes of a test: started by it, and ended with it, by their ids.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::sseismo;

/// One of our verbs that listens; it ends with the test.
#[derive(Debug)]
pub struct Listening {
    child: Child,
    /// Where it listens.
    pub url: String,
    /// Where a relay serves signals and metrics; empty for other verbs.
    pub admin: String,
}

impl Listening {
    /// Starts the binary and reads its address, the first line of stdout.
    ///
    /// # Panics
    /// When it does not start or says no address.
    pub fn start(args: &[&str]) -> Self {
        Self::of(sseismo().args(args))
    }

    /// The same of a command with its arguments.
    ///
    /// # Panics
    /// As [`Listening::start`].
    pub fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let told: Value = serde_json::from_str(&line).expect("the address as JSON");
        let url = told["listening"].as_str().expect("a URL").to_owned();
        Self { child, url, admin: told["admin"].as_str().unwrap_or_default().to_owned() }
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks for a graceful end, as a service manager does.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn end(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program of somebody else that listens on given ports; it ends with the test.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Starts it and waits until every port answers.
    ///
    /// # Panics
    /// When it does not start, or a port does not answer within 10 s.
    pub fn start(command: &mut Command, ports: &[u16]) -> Self {
        let program = Self(command.stdin(Stdio::null()).spawn().expect("the program starts"));
        for port in ports {
            let answers = (0..200).any(|_| {
                std::thread::sleep(Duration::from_millis(50));
                TcpStream::connect(("127.0.0.1", *port)).is_ok()
            });
            assert!(answers, "nobody listens on port {port} of {command:?}");
        }
        program
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free now, for programs that cannot choose one themselves.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
