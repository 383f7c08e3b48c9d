//! Limits of vassals (`vassal-limits`): which of them counts for a vassal, and the group of the kernel's that has them. It
//! does not start vassals. The emperor runs it.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use bolide_contract::emperor::VassalLimits;
use bolide_supervision::processes::control_groups::{ControlGroups, GroupLimits};
use glob::{MatchOptions, Pattern};

use crate::places::Found;

/// The groups, if there are limits.
#[derive(Debug)]
pub struct Limits {
    rows: Vec<(Option<Pattern>, GroupLimits)>,
    groups: Option<ControlGroups>,
    /// The groups of vassals, by their numbers.
    made: HashMap<u64, String>,
}

/// Returns the limits of each line.
pub fn of_lines(lines: &[VassalLimits]) -> Vec<GroupLimits> {
    lines.iter().map(of_line).collect()
}

fn of_line(line: &VassalLimits) -> GroupLimits {
    GroupLimits { memory_bytes: line.memory_bytes, cpu_percent: line.cpu_percent, tasks: line.tasks }
}

impl Limits {
    /// `groups` is `None` without limits.
    ///
    /// # Errors
    /// The pattern of a line is not one, as text.
    pub fn new(lines: &[VassalLimits], groups: Option<ControlGroups>) -> Result<Limits, String> {
        let row = |line: &VassalLimits| {
            let pattern = line.names.as_deref().map(Pattern::new).transpose();
            let pattern = pattern.map_err(|error| {
                format!("vassal-limits: `{}` is not a pattern of names: {error}", line.names.as_deref().unwrap_or_default())
            })?;
            Ok((pattern, of_line(line)))
        };
        Ok(Limits { rows: lines.iter().map(row).collect::<Result<_, String>>()?, groups, made: HashMap::new() })
    }

    /// Makes the group of a vassal, with its limits as they are now. Returns where a process enters it; `None` without limits.
    ///
    /// # Errors
    /// The kernel refuses them.
    pub fn prepare(&mut self, vassal: u64, found: &Found) -> io::Result<Option<OwnedFd>> {
        let Some(groups) = &self.groups else { return Ok(None) };
        let name = group_of(found);
        let made = groups.limited(&name, &self.of(&found.name))?;
        self.made.insert(vassal, name);
        Ok(Some(made))
    }

    /// The vassal is gone, and its group with it.
    pub fn forget(&mut self, vassal: u64) {
        if let (Some(groups), Some(name)) = (&self.groups, self.made.remove(&vassal)) {
            groups.remove(&name);
        }
    }

    fn of(&self, name: &str) -> GroupLimits {
        // A `*` may be any part of a path, as of a name.
        let options = MatchOptions::new();
        let concerned =
            self.rows.iter().filter(|(pattern, _)| pattern.as_ref().is_none_or(|own| own.matches_with(name, options)));
        concerned.fold(GroupLimits::default(), |before, (_, limits)| before.or(*limits))
    }
}

/// Two places may have vassals of one name.
fn group_of(found: &Found) -> String {
    format!("{}:{}", found.place, found.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_kind_the_last_limit_whose_pattern_has_the_name_counts() {
        let line = |names: Option<&str>, memory: Option<u64>, cpu: Option<u32>| VassalLimits {
            names: names.map(str::to_owned),
            memory_bytes: memory,
            cpu_percent: cpu,
            tasks: None,
        };
        let lines =
            [line(None, Some(512), Some(50)), line(Some("shop*.ini"), Some(2048), None), line(Some("/srv/*"), None, Some(400))];
        let limits = Limits::new(&lines, None).expect("patterns");
        let of = |name: &str| (limits.of(name).memory_bytes, limits.of(name).cpu_percent);
        assert_eq!(of("one.ini"), (Some(512), Some(50)));
        assert_eq!(of("shop1.ini"), (Some(2048), Some(50)));
        assert_eq!(of("/srv/a/shop.ini"), (Some(512), Some(400)));
        assert!(Limits::new(&[line(Some("a**b"), Some(1), None)], None).is_err());
    }
}
