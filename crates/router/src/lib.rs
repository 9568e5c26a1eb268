//! The relay that production traffic runs through.
//!
//! In: requests of any client. Out: the same requests at an upstream, their answers byte for byte, and a
//! record of each stream.
//!
//! | module | does | feature |
//! |---|---|---|
//! | `observe` | passes everything on to one upstream and records | `relay` |

#[cfg(feature = "relay")]
pub mod observe;
