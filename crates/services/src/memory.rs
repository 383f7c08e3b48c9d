//! The memory of a process by the kernel's numbers, and whether it exceeds a worker's limits. It does not read files. The texts
//! of /proc and of a cgroup are passed in.

use bolide_contract::recycling::MemoryLimits;

/// Memory of a process in bytes. Values that were not measured are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub address_space: u64,
    pub resident: u64,
    /// Resident and not shared.
    pub unique: Option<u64>,
    /// Resident, with shared memory divided by the number of processes that share it.
    pub proportional: Option<u64>,
}

impl Usage {
    /// From the text of /proc/PID/statm (proc_pid_statm(5)).
    pub fn from_statm(text: &str, page_bytes: u64) -> Option<Usage> {
        let mut pages = text.split_whitespace().map(|word| word.parse::<u64>().ok());
        let (address_space, resident) = (pages.next()??, pages.next()??);
        let bytes = |pages: u64| pages.saturating_mul(page_bytes);
        Some(Usage { address_space: bytes(address_space), resident: bytes(resident), ..Usage::default() })
    }

    /// Adds the values of the text of /proc/PID/smaps_rollup.
    pub fn add_smaps(&mut self, text: &str) {
        let kibibytes = |name: &str| -> Option<u64> {
            let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        let bytes = |kibibytes: u64| kibibytes.saturating_mul(1024);
        self.proportional = kibibytes("Pss").map(bytes);
        let clean = kibibytes("Private_Clean").zip(kibibytes("Private_Dirty"));
        self.unique = clean.map(|(clean, dirty)| bytes(clean.saturating_add(dirty)));
    }
}

/// An exceeded limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// The option that sets the limit.
    pub option: &'static str,
    pub used_bytes: u64,
    pub limit_bytes: u64,
    /// The worker is to be killed, not replaced.
    pub is_evil: bool,
}

/// The limit that a process has reached, if any. Limits that kill are checked first.
pub fn excess(limits: &MemoryLimits, usage: &Usage) -> Option<Excess> {
    let (resident, address_space) = (Some(usage.resident), Some(usage.address_space));
    let all = [
        ("evil-reload-on-rss", limits.evil_resident, resident, true),
        ("evil-reload-on-as", limits.evil_address_space, address_space, true),
        ("reload-on-rss", limits.resident, resident, false),
        ("reload-on-as", limits.address_space, address_space, false),
        ("reload-on-uss", limits.unique, usage.unique, false),
        ("reload-on-pss", limits.proportional, usage.proportional, false),
    ];
    all.into_iter().find_map(|(option, limit, used, is_evil)| {
        let (limit_bytes, used_bytes) = (limit?, used?);
        (used_bytes >= limit_bytes).then_some(Excess { option, used_bytes, limit_bytes, is_evil })
    })
}

/// The texts of the memory files of a version 2 cgroup; empty if a file is missing.
#[derive(Debug, Clone, Copy, Default)]
pub struct CgroupTexts<'a> {
    pub pressure: &'a str,
    pub current: &'a str,
    pub high: &'a str,
    pub max: &'a str,
}

/// Why a cgroup's processes are short of memory, as a text; `None` if they are not. They are if they waited for memory for
/// `percent` % of the time.
pub fn pressure(texts: &CgroupTexts<'_>, percent: u32) -> Option<String> {
    // `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`; "some" means that at least one task waited.
    let some = texts.pressure.lines().find_map(|line| line.strip_prefix("some "));
    let waited = some.and_then(|line| line.split_whitespace().find_map(|word| word.strip_prefix("avg10=")));
    let waited: f64 = waited.and_then(|text| text.parse().ok()).unwrap_or(0.0);
    if waited >= f64::from(percent) {
        return Some(format!("processes of the cgroup waited for memory for {waited} % of the last 10 s"));
    }
    // A limit that is not set reads `max`.
    let bytes = |text: &str| text.trim().parse::<u64>().ok();
    let current = bytes(texts.current)?;
    let beyond = |limit: u64, name: &str, share: &str| {
        (current >= limit).then(|| format!("the cgroup has {} of memory, {share}{name}", mebibytes(current)))
    };
    let high = bytes(texts.high).and_then(|limit| beyond(limit, "memory.high", ""));
    high.or_else(|| bytes(texts.max).and_then(|limit| beyond(limit / 10 * 9, "memory.max", "nine tenths of its ")))
}

/// `512 MiB`; `0.4 MiB`.
pub fn mebibytes(bytes: u64) -> String {
    const MEBIBYTE: u64 = 1024 * 1024;
    match bytes / MEBIBYTE {
        0 => format!("0.{} MiB", bytes * 10 / MEBIBYTE),
        whole => format!("{whole} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1024 * 1024;

    #[test]
    fn statm_counts_pages_and_smaps_kibibytes() {
        let mut usage = Usage::from_statm("5000 2000 700 1 0 900 0\n", 4096).expect("read");
        assert_eq!((usage.address_space, usage.resident, usage.unique), (5000 * 4096, 2000 * 4096, None));
        usage.add_smaps(
            "55d-7ff ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nPss:                 800 kB\nPss_Dirty: 1 kB\n\
            Private_Clean: 100 kB\nPrivate_Dirty: 24 kB\n",
        );
        assert_eq!((usage.proportional, usage.unique), (Some(800 * 1024), Some(124 * 1024)));
        for text in ["", "12", "x y"] {
            assert_eq!(Usage::from_statm(text, 4096), None, "{text}");
        }
    }

    #[test]
    fn a_limit_is_reached_at_its_very_number_and_one_that_kills_comes_first() {
        let usage = Usage { address_space: 900, resident: 100, unique: Some(40), proportional: None };
        let none = MemoryLimits::default();
        for (limits, found) in [
            (none.clone(), None),
            (MemoryLimits { resident: Some(101), ..none.clone() }, None),
            (MemoryLimits { resident: Some(100), ..none.clone() }, Some(("reload-on-rss", false))),
            (MemoryLimits { resident: Some(1), evil_resident: Some(50), ..none.clone() }, Some(("evil-reload-on-rss", true))),
            (MemoryLimits { evil_address_space: Some(900), ..none.clone() }, Some(("evil-reload-on-as", true))),
            (MemoryLimits { address_space: Some(899), ..none.clone() }, Some(("reload-on-as", false))),
            (MemoryLimits { unique: Some(40), ..none.clone() }, Some(("reload-on-uss", false))),
            // A value that was not measured exceeds no limit.
            (MemoryLimits { proportional: Some(1), ..none }, None),
        ] {
            let excess = excess(&limits, &usage);
            assert_eq!(excess.map(|excess| (excess.option, excess.is_evil)), found, "{limits:?}");
        }
    }

    #[test]
    fn a_cgroup_is_short_of_memory_when_its_processes_wait_or_a_limit_is_near() {
        let calm = "some avg10=0.00 avg60=9.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0 avg300=0 total=0\n";
        let pressed = "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\n";
        let unlimited = CgroupTexts { pressure: calm, current: "1000\n", high: "max\n", max: "max\n" };
        for (texts, words) in [
            (unlimited, None),
            (CgroupTexts::default(), None),
            (CgroupTexts { pressure: pressed, ..unlimited }, Some("12.5 % of the last 10 s")),
            (CgroupTexts { high: "1000\n", ..unlimited }, Some("memory.high")),
            (CgroupTexts { high: "1001\n", ..unlimited }, None),
            (CgroupTexts { max: "1100\n", ..unlimited }, Some("nine tenths of its memory.max")),
            (CgroupTexts { max: "1200\n", ..unlimited }, None),
        ] {
            let found = pressure(&texts, 10);
            assert_eq!(found.is_some(), words.is_some(), "{texts:?}: {found:?}");
            assert!(found.unwrap_or_default().contains(words.unwrap_or_default()), "{texts:?}");
        }
    }

    #[test]
    fn bytes_are_told_in_mebibytes() {
        assert_eq!([MEBIBYTE * 512 + 1, MEBIBYTE / 2].map(mebibytes), ["512 MiB", "0.5 MiB"]);
    }
}
