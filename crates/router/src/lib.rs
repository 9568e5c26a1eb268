//! The relay that production traffic runs through.
