//! The options of Ruby, whose adapter is the plugin `rack`. Runs in the process that reads the configuration.

use crate::row::{OptionEntry, Reach, Setting, Value, absent, accepted, list, refused, rows, supported, within};
use crate::topics::languages::plugins::{add_application, add_number, add_option};

pub const ENTRIES: &[OptionEntry] = rows![
    /// The Rack application: a `config.ru`. Its adapter is the plugin `rack`, which `bolide plugin build rack` makes, or Debian's
    /// package `bolide-rack`. With `threads`, a worker answers several requests at the same time.
    /// uWSGI: The number of the plugin in a uwsgi packet may be 0 or 7.
    /// Example: rack = config.ru
    supported("rack", Setting::By(add_application)).takes(Value::Path, "").reach(Reach::Master),
    /// A file or a library that is required before the application is loaded, such as `bundler/setup`.
    /// Example: rack = config.ru
    ///          rb-require = bundler/setup
    list("rb-require", Setting::By(add_option)).reach(Reach::Application),
    /// Another file or library that is required before the application is loaded.
    /// uWSGI: It is loaded in the master. In Bolide both are loaded in the process that the workers are forked from.
    /// Example: rack = config.ru
    ///          shared-rb-require = bundler/setup
    list("shared-rb-require", Setting::By(add_option)).reach(Reach::Application),
    /// A directory that is searched for Ruby files, before all others.
    /// Example: rack = config.ru
    ///          rb-lib = lib
    list("rb-lib", Setting::By(add_option)).takes(Value::Path, "").reach(Reach::Application),
    /// Collect all of Ruby's garbage after this number of requests of a worker, in addition to Ruby's own collections.
    /// uWSGI: uWSGI collects after every request without this option.
    /// Example: rack = config.ru
    ///          rb-gc-freq = 1000
    supported("rb-gc-freq", Setting::By(add_number)).takes(within(0, 1_000_000_000, "requests"), "off")
        .reach(Reach::Application),
    /// Run the threads of a worker as threads of Ruby.
    /// Why: `threads` alone does so
    accepted("rb-thread", Value::Switch),
    /// The directory of a Rails application of version 2.
    /// Instead: write `rack = config.ru` and `chdir = DIRECTORY`, because each Rails since version 3 has this file
    refused("rails", Value::Path),
    /// Run in a gem set of RVM.
    /// Instead: set GEM_HOME and GEM_PATH with `env`, as `rvm env` shows them
    refused("gemset", Value::Text),
    /// The directory of RVM.
    /// Instead: set GEM_HOME and GEM_PATH with `env`, as `rvm env` shows them
    refused("rvm-path", Value::List),
    /// Start a Ruby shell instead of serving.
    /// Instead: run `irb`
    absent("rbshell", Value::Special),
    /// Start one Ruby shell instead of serving.
    /// Instead: run `irb`
    absent("rbshell-oneshot", Value::Switch),
];
