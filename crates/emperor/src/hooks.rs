//! The hooks that the emperor executes itself: beside a vassal that it has started (`exec-as-emperor`), and after the end of one
//! (`vassals-stop-hook`). They run beside the loop, each within a time limit. The emperor runs it.

use std::process::{Command, Stdio};

use bolide_contract::emperor::VassalHooks;
use bolide_supervision::log_sink;
use bolide_supervision::processes::auxiliary::{Auxiliaries, AuxiliaryProcess};
use bolide_supervision::processes::forking::Forked;
use bolide_supervision::processes::preparation::Preparation;
use nix::unistd::Pid;

use crate::launch::SHELL;
use crate::places::Owner;

/// Time limit of a hook, in milliseconds.
const HOOK_MS: u64 = 30_000;
/// Hooks at the same time; another one is not executed.
const MAX_HOOKS: usize = 64;

/// The running hooks.
#[derive(Debug, Default)]
pub struct Hooks(Auxiliaries<()>);

impl Hooks {
    /// A vassal was started.
    pub fn started(&mut self, hooks: &VassalHooks, name: &str, pid: Pid, owner: Option<Owner>, now_ms: u64) {
        for text in &hooks.as_emperor {
            let mut command = Command::new(SHELL);
            command.arg("-c").arg(text).env("UWSGI_VASSAL_CONFIG", name).env("UWSGI_VASSAL_PID", pid.to_string());
            let owner = owner.unwrap_or(Owner { user: 0, group: 0 });
            command.env("UWSGI_VASSAL_UID", owner.user.to_string()).env("UWSGI_VASSAL_GID", owner.group.to_string());
            self.run("exec-as-emperor", name, command, now_ms);
        }
    }

    /// A vassal has ended.
    pub fn ended(&mut self, hooks: &VassalHooks, name: &str, now_ms: u64) {
        if let Some(program) = &hooks.stop {
            let mut command = Command::new(program);
            command.arg(name);
            self.run("vassals-stop-hook", name, command, now_ms);
        }
    }

    fn run(&mut self, option: &str, name: &str, mut command: Command, now_ms: u64) {
        if self.0.len() >= MAX_HOOKS {
            return log_sink::line(&format!("{option} of vassal {name} is not executed: {MAX_HOOKS} hooks are running"));
        }
        command.stdin(Stdio::null());
        Preparation { leads_group: true, ..Preparation::default() }.of(&mut command);
        match command.spawn() {
            Ok(child) => {
                // The emperor reaps it: dropping the handle neither waits nor kills.
                let forked = Forked { pid: Pid::from_raw(child.id() as i32), channel: None, leash: None };
                let mut process = AuxiliaryProcess::new(format!("{option} of vassal {name}"), forked, (), now_ms);
                process.end_by(now_ms.saturating_add(HOOK_MS));
                self.0.add(process);
            }
            Err(error) => log_sink::line(&format!("{option} of vassal {name} can't be executed: {error}")),
        }
    }

    /// Kills those that take too long.
    pub fn kill_late(&mut self, now_ms: u64) {
        self.0.kill_late("takes too long", now_ms).iter().for_each(|line| log_sink::line(line));
    }

    /// When the next one takes too long.
    pub fn wake_ms(&self) -> Option<u64> {
        self.0.wake_ms()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the end of a child. Returns whether it was a hook.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> bool {
        let Some(ended) = self.0.note_end(pid, status, now_ms) else { return false };
        if status != 0 {
            log_sink::line(&ended.words());
        }
        true
    }
}
