//! Resolves the options of mules to helpers. It starts nothing and does not open files. Runs in the process that reads the
//! configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::children::{Helper, MuleCode, Task};
use bolide_contract::mules::{Farm, MuleApp, Mules};
use bolide_contract::watching::{FileAction, WatchSubject};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, SECONDS, Setting, Value, field, list, rows, supported, within};
use crate::topics::interpreter::PythonModuleDraft;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Add a mule, a process beside the workers that has loaded the application. A mule without a value waits for messages
    /// (`uwsgi.mule_msg`, `@mulefunc`) and signals. With a file that ends in `.py` it executes this file, and with
    /// `module:function` it calls this function. A mule that exits is started again. A reload stops it before its successor
    /// starts.
    /// uWSGI: With `lazy-apps` a mule of uWSGI does not load the application. Here it loads the application, as each worker does.
    /// Example: mule = true
    ///          mule = mailer.py
    ///          mule = shop.background:main
    supported("mule", Setting::By(add_mule))
        .takes(Value::Form("a file that ends in `.py`, or `MODULE:FUNCTION`"), "").several().reach(Reach::Application),
    /// Add this many mules that wait for messages and signals.
    /// Example: mules = 2
    supported("mules", Setting::By(add_mules)).takes(within(0, MAX_MULES, "mules"), "0").reach(Reach::Application),
    /// How long a mule may work on a message at shutdown or a reload. A mule between two messages exits immediately.
    /// uWSGI: uWSGI interrupts a mule in the middle of a message, unless its code handles the signal.
    /// Example: mules = 1
    ///          mule-reload-mercy = 30
    supported("mule-reload-mercy", Setting::Seconds(field!(MulesDraft.reload_mercy_ms)))
        .takes(SECONDS, "`reload-mercy`").reach(Reach::Application),
    /// Kill a mule that works on one message or signal longer than this. The log identifies it and shows its stack, and the mule
    /// is started again.
    /// uWSGI: uWSGI has no limit for messages, only for signals.
    /// Example: mules = 1
    ///          mule-harakiri = 60
    supported("mule-harakiri", Setting::Seconds(field!(MulesDraft.harakiri_ms))).takes(SECONDS, "off").reach(Reach::Application),
    /// Replace a mule that has more resident memory than this, when it has finished the message that it works on.
    /// Example: mules = 1
    ///          mule-reload-on-rss = 512
    supported("mule-reload-on-rss", Setting::Mebibytes(field!(MulesDraft.most_resident_bytes)))
        .takes(within(0, 1_048_576, "MiB"), "off").reach(Reach::Application),
    /// The size of each queue of messages in bytes, including the kernel's overhead for each message. If the queue is full,
    /// `uwsgi.mule_msg` returns False. net.core.wmem_max limits the size.
    /// Example: mules = 1
    ///          mule-msg-size = 1048576
    supported("mule-msg-size", Setting::By(set_queue_bytes))
        .takes(within(1, 1_073_741_824, "bytes"), "that of the kernel").reach(Reach::Application),
    /// Define a farm, which is several mules that share a queue of messages. The value is a name, a colon and the numbers of the
    /// mules. `uwsgi.farm_msg` and `uwsgi.mule_msg` with the name send to it, and one of its mules takes the message.
    /// Example: mules = 2
    ///          farm = mail:1,2
    supported("farm", Setting::LocatedTexts(field!(MulesDraft.farms)))
        .takes(Value::Form("`NAME:NUMBER[,NUMBER…]`"), "").reach(Reach::Application),
    /// An object that mules keep, for example a model that takes long to load. The value is `package.module:Class`.
    /// `bolide.helpers.mules.call("package.module:Class", "method", …)` calls its method in a free mule from any process, and
    /// returns the result. With `:2` after it, two of the mules keep it.
    /// Example: mules = 2
    ///          mule-app = shop.models:Model
    ///          mule-app = shop.models:Large:1
    list("mule-app", Setting::LocatedTexts(field!(MulesDraft.apps))).reach(Reach::Application),
    /// Replace the mules, but not the workers, when this file is touched.
    /// Example: mules = 1
    ///          touch-mules-reload = /srv/shop/mules
    list("touch-mules-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadMules)).reach(Reach::Master),
    /// The maximum number of functions that `uwsgi.register_rpc` registers.
    /// uWSGI: In uWSGI other servers can call functions too. Here only their own process can call them (`uwsgi.rpc(None, …)`,
    /// `uwsgi.call`).
    /// Example: rpc-max = 256
    supported("rpc-max", Setting::Number(field!(PythonModuleDraft.0.rpc_most)))
        .takes(within(0, 65_536, "functions"), "64").reach(Reach::Application),
];

/// The highest number of mules, as of workers.
pub const MAX_MULES: i64 = 1024;

/// `mule`: without a value, or with one of a switch, it waits for messages.
pub fn add_mule(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let written = pair.value.as_deref().map(str::trim).unwrap_or_default();
    let code = match written {
        "" | "true" | "on" | "yes" | "1" => None,
        file if file.ends_with(".py") => Some(MuleCode::File(file.into())),
        function if function.contains(':') => Some(MuleCode::Function(function.to_owned())),
        other => {
            return Err(Diagnostic::error(Some(&pair.location), format!("`mule = {other}` does not contain the code of a mule"))
                .advise(
                    "write a file that ends in `.py`, `module:function`, or `mule = true` for a mule that waits for messages",
                ));
        }
    };
    add(draft, code, &pair.location)
}

/// `mules`
pub fn add_mules(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    (0..draft.bounded_u32(row, pair)?).try_for_each(|_| add(draft, None, &pair.location))
}

/// `mule-msg-size`; as in uWSGI, 0 and no value leave it to the kernel.
pub fn set_queue_bytes(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<MulesDraft>().queue_bytes = match pair.value.as_deref().map(str::trim) {
        None | Some("" | "0") => None,
        Some(_) => Some(draft.bounded_usize(row, pair)?),
    };
    Ok(())
}

fn add(draft: &mut Draft, code: Option<MuleCode>, location: &Location) -> Result<(), Diagnostic> {
    if draft.of::<MulesDraft>().list.len() as i64 >= MAX_MULES {
        return Err(Diagnostic::error(Some(location), format!("there can't be more than {MAX_MULES} mules")));
    }
    draft.of::<MulesDraft>().list.push(code);
    Ok(())
}

impl MulesDraft {
    /// Completes the list of helpers, and what mules have in common. Relative paths start at the directory of `chdir`, as in
    /// uWSGI.
    pub fn complete(self, context: &mut Context) -> (Vec<Helper>, Mules) {
        let count = self.list.len() as u32;
        let waiting: Vec<u32> = (1u32..).zip(&self.list).filter(|(_, code)| code.is_none()).map(|(number, _)| number).collect();
        let mule = |(number, code): (u32, Option<MuleCode>)| {
            let code = code.map(|code| match code {
                MuleCode::File(path) => MuleCode::File(context.absolute(path)),
                function => function,
            });
            let task = Task::Mule { number, code };
            let (reload_mercy_ms, harakiri_ms) = (self.reload_mercy_ms, self.harakiri_ms);
            Helper { task, reload_mercy_ms, harakiri_ms, most_resident_bytes: self.most_resident_bytes }
        };
        let helpers = (1u32..).zip(self.list).map(mule).collect();
        let mut farms: Vec<Farm> = Vec::new();
        for (written, location) in self.farms {
            match farm(&written, count).and_then(|found| unique(found, &farms)) {
                Ok(found) => farms.push(found),
                Err(why) => context.diagnostics.push(
                    Diagnostic::error(Some(&location), format!("`farm = {written}`: {why}"))
                        .advise("write a name, a colon and the numbers of its mules: `farm = mail:1,2`"),
                ),
            }
        }
        let mut apps: Vec<MuleApp> = Vec::new();
        for (written, location) in self.apps {
            let taken = apps.iter().filter(|app| app.has_count).map(|app| app.mules.len()).sum();
            match app(&written, &waiting, taken, &location) {
                Ok(found) if apps.iter().all(|app| app.name != found.name) => apps.push(found),
                Ok(_) => {}
                Err((why, advice)) => context
                    .diagnostics
                    .push(Diagnostic::error(Some(&location), format!("`mule-app = {written}`: {why}")).advise(advice)),
            }
        }
        (helpers, Mules { farms, apps, queue_bytes: self.queue_bytes })
    }
}

/// Reads an app: `shop.models:Model` or `shop.models:Model:2`. Apps with a number of mules are spread over them. `taken` is the
/// number of places that apps before it take.
fn app(written: &str, waiting: &[u32], taken: usize, location: &Location) -> Result<MuleApp, (String, String)> {
    let form = || "write `package.module:Class`, or `package.module:Class:2` for an object in two of the mules".to_owned();
    let parts: Vec<&str> = written.split(':').collect();
    let (module, class, count) = match parts[..] {
        [module, class] => (module, class, None),
        [module, class, count] => (module, class, Some(count)),
        _ => return Err(("it is not a class in a module".to_owned(), form())),
    };
    if module.is_empty() || class.is_empty() {
        return Err(("it is not a class in a module".to_owned(), form()));
    }
    if waiting.is_empty() {
        return Err(("there is no mule that waits for calls".to_owned(), "write `mules = 2` too".to_owned()));
    }
    let most = waiting.len();
    let mules = match count.map(str::parse::<usize>) {
        None => waiting.to_vec(),
        Some(Ok(count)) if count > 0 => (0..count.min(most)).map(|place| waiting[(taken + place) % most]).collect(),
        Some(_) => return Err((format!("`{}` is not a number of mules", count.unwrap_or_default()), form())),
    };
    Ok(MuleApp { name: format!("{module}:{class}"), mules, has_count: count.is_some(), origin: location.to_string() })
}

/// Reads a farm: `mail:1,2`.
fn farm(written: &str, count: u32) -> Result<Farm, String> {
    let (name, numbers) = written.split_once(':').ok_or("there is no colon in it")?;
    if name.is_empty() {
        return Err("the farm has no name".to_owned());
    }
    let number = |text: &str| match text.trim().parse() {
        Ok(number) if (1..=count).contains(&number) => Ok(number),
        _ if count == 0 => Err("there are no mules; add `mules = 2`".to_owned()),
        _ => Err(format!("there is no mule `{}`, the mules are 1 to {count}", text.trim())),
    };
    // As in uWSGI, empty numbers do not count.
    let mules = numbers.split(',').filter(|text| !text.trim().is_empty()).map(number).collect::<Result<Vec<u32>, String>>()?;
    match mules.is_empty() {
        true => Err("the farm has no mule".to_owned()),
        false => Ok(Farm { name: name.to_owned(), mules }),
    }
}

fn unique(found: Farm, farms: &[Farm]) -> Result<Farm, String> {
    match farms.iter().any(|farm| farm.name == found.name) {
        true => Err("there is another farm of this name".to_owned()),
        false => Ok(found),
    }
}

/// Mules so far. Paths are as written.
#[derive(Default)]
pub struct MulesDraft {
    /// The code of each mule, if it has its own.
    pub list: Vec<Option<MuleCode>>,
    pub reload_mercy_ms: Option<u64>,
    pub harakiri_ms: Option<u64>,
    pub most_resident_bytes: Option<u64>,
    pub queue_bytes: Option<usize>,
    pub farms: Vec<(String, Location)>,
    pub apps: Vec<(String, Location)>,
}
