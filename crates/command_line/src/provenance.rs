//! The sources of a configuration: its files, and those of its options that act with more than the application's privileges. Runs
//! in the process that reads the configuration.

use bolide_configuration::host_info::HostInfo;
use bolide_configuration::pair::Pair;
use bolide_options::catalogue::catalogue;
use bolide_options::reader::Configuration;
use bolide_options::row::Reach;
use bolide_options::row::Status;

use crate::reading::{PrivilegedOption, Sources};

/// Returns the sources of a configuration that has been read.
pub fn sources(read: &Configuration, host: &HostInfo) -> Sources {
    Sources { files: host.trust.take_used(), privileged: read.effects.iter().filter_map(privileged_option).collect() }
}

fn privileged_option(pair: &Pair) -> Option<PrivilegedOption> {
    let row = catalogue().get(&pair.key).filter(|row| matches!(row.status, Status::Supported(_)))?;
    let reach = row.reach;
    let (value, origin) = (pair.value.clone(), pair.location.to_string());
    (reach != Reach::Application).then(|| PrivilegedOption { option: pair.key.clone(), value, origin, reach })
}
