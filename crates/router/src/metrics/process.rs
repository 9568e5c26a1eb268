//! The process's own memory, under the name that Prometheus's own clients give it.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads the kernel's word at each scrape; says nothing where there is none.
#[derive(Debug)]
pub(super) struct Memory;

impl Collector for Memory {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(bytes) = resident() else { return Ok(()) };
        let gauge = ConstGauge::new(bytes);
        let metric = encoder.encode_descriptor(
            "process_resident_memory_bytes",
            "Resident memory of the process.",
            None,
            gauge.metric_type(),
        )?;
        gauge.encode(metric)
    }
}

/// Bytes of memory that are resident.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}
