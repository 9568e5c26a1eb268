//! Helpers of the whole-path tests.
