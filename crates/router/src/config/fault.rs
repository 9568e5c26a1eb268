//! What is wrong with a configuration, and where.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

/// One thing that must be changed before the file can be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Line of the file, from 1.
    pub line: usize,
    /// What is wrong and what to do. Never holds a secret.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

/// Gathers faults while the sections of one text are read.
#[derive(Debug)]
pub(super) struct Faults<'a> {
    text: &'a str,
    found: RefCell<Vec<Fault>>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, found: RefCell::default() }
    }

    /// Notes a fault at the line in which `span` begins.
    pub(super) fn add(&self, span: &Range<usize>, message: impl Into<String>) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = 1 + before.matches('\n').count();
        self.found.borrow_mut().push(Fault { line, message: message.into() });
    }

    /// All faults by line, each once.
    pub(super) fn finish(self) -> Vec<Fault> {
        let mut found = self.found.into_inner();
        found.sort();
        found.dedup();
        found
    }
}
