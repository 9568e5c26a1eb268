//! The relay that production traffic runs through.
//!
//! In: requests of any client. Out: the same requests at an upstream, their answers byte for byte, and a
//! record of each stream.
//!
//! | module | does | feature |
//! |---|---|---|
//! | `front` | what callers may ask: the routing relay | `relay` |
//! | `exchange` | one request: attempts until one answer is committed | `relay` |
//! | `relayed` | a committed answer on its way to the client | `relay` |
//! | `config` | TOML → what a relay is told, or every fault with its line | `relay` |
//! | `choice` | request → the next upstream to try, until there is an answer or a reason | `relay` |
//! | `breaker` | outcomes → whether an upstream's model is left alone | `relay` |
//! | `outcome` | answer → what it says about its upstream | `relay` |
//! | `affinity` | answers and requests → the organisation that can read a request's state | `relay` |
//! | `turn` | requests → which of them are attempts of one client turn | `relay` |
//! | `keys`, `auth` | secrets → the key for the next request, the caller's name | `relay` |
//! | `spend` | reported usage → dollars | `relay` |
//! | `steer` | signals → which upstream keeps how much, under guards that hold whatever comes in | `relay` |
//! | `policy` | a call → what its route does about it before it is planned | `relay` |
//! | `feed` | signals to everybody who listens | `relay` |
//! | `order` | what steering decided, for those who steer other routers by it | `relay` |
//! | `sink` | orders → other routers, each with its lease | `sinks` |
//! | `metrics` | what happened, for Prometheus | `relay` |
//! | `admin` | serves the feed, the metrics and the state of health beside the traffic | `relay` |
//! | `reload` | changes of that file → a new router with the old one's state | `relay` |
//! | `access`, `operator` | what became of each request; the same for operators | `relay` |
//! | `health` | asks upstreams whether they are there | `relay` |
//! | `observe` | passes everything on to one upstream and records | `relay` |
//! | `serve` | the listening side and its limits | `relay` |
//! | `inbound`, `rewrite`, `usage`, `credentials` | what becomes of a request before it is sent | `relay` |
//! | `hold` | the start of an answer, until it is known whether it is one | `relay` |
//! | `finish`, `keepalive`, `retry_after` | what is said in an upstream's place | `relay` |

#[cfg(feature = "relay")]
pub mod access;
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
mod clock;
#[cfg(feature = "relay")]
pub mod config;
#[cfg(feature = "relay")]
pub mod credentials;
#[cfg(feature = "relay")]
pub mod exchange;
#[cfg(feature = "relay")]
pub mod feed;
#[cfg(feature = "relay")]
pub mod finish;
#[cfg(feature = "relay")]
pub mod front;
#[cfg(feature = "relay")]
pub mod health;
#[cfg(feature = "relay")]
pub mod hold;
#[cfg(feature = "relay")]
pub mod inbound;
#[cfg(feature = "relay")]
pub mod keepalive;
#[cfg(feature = "relay")]
pub mod keys;
#[cfg(feature = "relay")]
pub mod link;
#[cfg(feature = "relay")]
pub mod metrics;
#[cfg(feature = "relay")]
pub mod observe;
#[cfg(feature = "relay")]
pub mod operator;
#[cfg(feature = "relay")]
pub mod order;
#[cfg(feature = "relay")]
pub mod outcome;
#[cfg(feature = "relay")]
pub mod own;
#[cfg(feature = "relay")]
mod patience;
#[cfg(feature = "relay")]
pub mod policy;
#[cfg(feature = "relay")]
pub mod relayed;
#[cfg(feature = "relay")]
pub mod reload;
#[cfg(feature = "relay")]
pub mod retry_after;
#[cfg(feature = "relay")]
pub mod rewrite;
#[cfg(feature = "relay")]
pub mod serve;
#[cfg(feature = "sinks")]
pub mod sink;
#[cfg(feature = "relay")]
pub mod spend;
#[cfg(feature = "relay")]
pub mod steer;
#[cfg(feature = "relay")]
pub mod turn;
#[cfg(feature = "relay")]
pub mod usage;
