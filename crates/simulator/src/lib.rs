//! Upstreams with known truth: pure seeded generators, and (feature `serve`) real HTTP servers.
