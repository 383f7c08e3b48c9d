//! Packets of the exporter to the master over a SOCK_SEQPACKET pair: counts, and lines for the log. It knows the encoding only.
//! The exporter and the master run it.

use bolide_services::statistics::SpanCounts;

/// Maximum bytes of a packet.
pub const MAX_REPORT_BYTES: usize = 1024;

const COUNTS: u8 = b'c';
const LINE: u8 = b't';

/// A report of the exporter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExporterReport {
    /// What has become of spans since the last report.
    Counts(SpanCounts),
    LogLine(String),
}

impl ExporterReport {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ExporterReport::Counts(SpanCounts { exported, failed, dropped }) => {
                [vec![COUNTS], [exported, failed, dropped].into_iter().flat_map(|count| count.to_le_bytes()).collect()].concat()
            }
            ExporterReport::LogLine(text) => {
                let end = text.len().min(MAX_REPORT_BYTES - 1);
                [&[LINE], &text.as_bytes()[..end]].concat()
            }
        }
    }

    /// Returns `None` for a packet that no exporter sends.
    pub fn decode(packet: &[u8]) -> Option<ExporterReport> {
        let (kind, rest) = packet.split_first()?;
        match *kind {
            LINE => Some(ExporterReport::LogLine(String::from_utf8_lossy(rest).into_owned())),
            COUNTS => {
                let (exported, rest) = rest.split_first_chunk()?;
                let (failed, rest) = rest.split_first_chunk()?;
                let dropped = rest.try_into().ok()?;
                let [exported, failed, dropped] = [*exported, *failed, dropped].map(u64::from_le_bytes);
                Some(ExporterReport::Counts(SpanCounts { exported, failed, dropped }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_made_and_never_too_long() {
        for report in [
            ExporterReport::Counts(SpanCounts { exported: 1, failed: u64::MAX, dropped: 3 }),
            ExporterReport::LogLine("the collector has gone".to_owned()),
        ] {
            assert_eq!(ExporterReport::decode(&report.encode()), Some(report));
        }
        assert!(ExporterReport::LogLine("ä".repeat(MAX_REPORT_BYTES)).encode().len() <= MAX_REPORT_BYTES);
        for nonsense in [&b""[..], b"?", b"c1234567", &[b'c'; 26]] {
            assert_eq!(ExporterReport::decode(nonsense), None);
        }
    }
}
