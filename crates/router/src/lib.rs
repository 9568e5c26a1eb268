//! The relay that production traffic runs through.
//!
//! In: requests of any client. Out: the same requests at an upstream, their answers byte for byte, and a
//! record of each stream.
//!
//! | module | does | feature |
//! |---|---|---|
//! | `observe` | passes everything on to one upstream and records | `relay` |
//! | `config` | TOML → what a relay is told, or every fault with its line | `relay` |
//! | `reload` | changes of that file → a new router with the old one's state | `relay` |
//! | `choice` | request → the next upstream to try, until there is an answer or a reason | `relay` |
//! | `breaker` | outcomes → whether an upstream's model is left alone | `relay` |
//! | `outcome` | answer → what it says about its upstream | `relay` |
//! | `affinity` | answers and requests → the organisation that can read a request's state | `relay` |
//! | `turn` | requests → which of them are attempts of one client turn | `relay` |
//! | `keys`, `auth` | secrets → the key for the next request, the caller's name | `relay` |
//! | `spend` | reported usage → dollars | `relay` |
//! | `feed` | signals to everybody who listens | `relay` |
//! | `metrics` | what happened, for Prometheus | `relay` |
//! | `admin` | serves the feed, the metrics and the state of health beside the traffic | `relay` |

#[cfg(feature = "relay")]
pub mod admin;
#[cfg(feature = "relay")]
pub mod affinity;
#[cfg(feature = "relay")]
pub mod auth;
#[cfg(feature = "relay")]
pub mod breaker;
#[cfg(feature = "relay")]
mod budget;
#[cfg(feature = "relay")]
pub mod choice;
#[cfg(feature = "relay")]
pub mod config;
#[cfg(feature = "relay")]
pub mod feed;
#[cfg(feature = "relay")]
pub mod keys;
#[cfg(feature = "relay")]
pub mod metrics;
#[cfg(feature = "relay")]
pub mod observe;
#[cfg(feature = "relay")]
pub mod outcome;
#[cfg(feature = "relay")]
mod patience;
#[cfg(feature = "relay")]
pub mod reload;
#[cfg(feature = "relay")]
pub mod spend;
#[cfg(feature = "relay")]
pub mod turn;
