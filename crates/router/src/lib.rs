//! The relay that production traffic runs through.
//!
//! In: requests of any client. Out: the same requests at an upstream, their answers byte for byte, and a
//! record of each stream.
//!
//! | module | does | feature |
//! |---|---|---|
//! | `observe` | passes everything on to one upstream and records | `relay` |
//! | `feed` | signals to everybody who listens | `relay` |
//! | `metrics` | what happened, for Prometheus | `relay` |
//! | `admin` | serves the feed, the metrics and the state of health beside the traffic | `relay` |

#[cfg(feature = "relay")]
pub mod admin;
#[cfg(feature = "relay")]
pub mod feed;
#[cfg(feature = "relay")]
pub mod metrics;
#[cfg(feature = "relay")]
pub mod observe;
