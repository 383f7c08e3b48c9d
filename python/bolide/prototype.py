"""The prototype: an interpreter that loads the application, forks workers and never serves.

The master executes it as ``python …/bolide/prototype.py N`` or ``python -m bolide.prototype N``, where N is the number of the
descriptor that holds its settings. With ``--rehearse`` instead of N it loads the application, reports the result and exits
(``bolide check --load``). It must not know sockets or protocols, which belong to the native module.
"""

import contextlib
import errno
import os
import re
import sys

#: Maximum number of causes of an exception that are examined.
MAX_CAUSES = 20


def main(descriptor):
    """Run this process, prototype or worker, and begin its shutdown. Return the exit status."""
    native = import_native()
    from bolide import shutdown

    half = made_half(native)
    # The native module calls its methods to load, and forks on order.
    status = native.run_prototype(descriptor, half)
    shutdown.begin(status, is_awaited=half.is_unshared)
    half.end()
    return status


def made_half(native):
    # Modules that workers need are imported before the fork, so that workers share them. `threads` must be imported before the
    # application can replace Python's threads.
    from bolide import log, wsgi
    from bolide.gevent import patching as gevent_patching  # noqa: F401

    return Half(native, log, wsgi)


class Half:
    """The Python half of a prototype and of its workers. The native module calls its methods."""

    def __init__(self, native, log, wsgi):
        self.native = native
        self.log = log
        self.wsgi = wsgi
        self.boot = self.settings = None
        #: The result of `load_applications`, once it is loaded.
        self.applications = None
        #: The module `uwsgi` of the application, and its functions for a worker's start and end.
        self.uwsgi = self.hooks = None
        #: The application opened things that workers can't share, so another prototype will fork them (``fork-safety = lazy``).
        self.is_unshared = False
        #: It was a worker that has served and has ended normally.
        self.has_served = False
        #: This worker's generation has not been accepted yet.
        self.is_on_trial = False
        #: If this worker can't load the application, its generation fails, and the master logs the reason.
        self.begins_generation = False
        #: The imports that `py-autoreload` follows; None if it is off.
        self.followed = None
        #: The hooks of a gunicorn.conf.py, and the reason if it can't be executed; None if there is none.
        self.gunicorn = self.gunicorn_fault = None
        #: The reason why gevent can't be used, if it is to be used; None if there is none.
        self.gevent_fault = None
        #: In a helper, its life: an object of `bolide.helpers.helper`.
        self.helper = None
        #: With `refork-after`, an object of `bolide.succession`.
        self.lineage = None
        #: Its forks know that they are forks of a worker's image: hooks that are registered once are in place.
        self.was_worker = False
        #: With `develop`, an object of `bolide.development.developing`.
        self.development = None

    def prepare(self, boot):
        """Set up this process as the application sees it: path, environment, arguments."""
        import atexit

        from bolide import application_process, coerced_locale, threads

        # A call of `bolide.run` from now on comes from the application's own module, which is being loaded to be served.
        application_process.is_one = True
        # Registered first, so that it runs last: the application's atexit functions may still write to the log.
        atexit.register(finish, self.native)
        self.boot = boot
        self.settings = boot["settings"]
        application, python = self.settings["application"], self.settings["language"]["python"]
        # uWSGI has "." first in sys.path, after the directories of pythonpath.
        sys.path[:0] = [*python["path"], *([] if python["is_directory_shared"] else ["."])]
        if python["no_site"]:
            sys.path += packages_of_virtualenv()
        for key, value in application["environment"]:
            os.environ[key] = value
        for key in application["removed_variables"]:
            os.environ.pop(key, None)
        coerced_locale.drop()
        if python["executable"]:
            sys.executable = python["executable"]
        threads.stack_bytes = python["thread_stack_bytes"] or 0
        if not boot["at_terminal"] and sys.breakpointhook is sys.__breakpointhook__:
            sys.breakpointhook = stop_without_terminal
        # As with uWSGI, applications find the server's name here, whichever program runs.
        sys.argv = ["uwsgi", *python["arguments"]]
        name_process(self.native, self.settings, "prototype")
        from bolide.hooks import Hooks
        from bolide.uwsgi.module import Uwsgi

        described = self.settings["language"]["python"]["module"]
        self.uwsgi = Uwsgi(self.native, boot, self.log)
        if not described["is_hidden"]:
            self.uwsgi.register()
        self.hooks = Hooks(described, self.uwsgi)
        if self.settings["watching"]["imports"] or self.settings["development"] is not None:
            from bolide.loading import bytecode

            bytecode.skip_young_sources()
        if self.settings["watching"]["imports"]:
            from bolide.development import autoreload

            self.followed = autoreload.Imports(self.settings["watching"]["imports"])
        if self.settings["mules"]["apps"]:
            from bolide.gunicorn import dirty as gunicorn_dirty

            gunicorn_dirty.install()
        if self.settings["language"]["python"]["server_loggers"] is not None:
            from bolide import server_loggers

            server_loggers.install(self.settings["language"]["python"]["server_loggers"])
        # From here on code of the application may run.
        if self.settings["language"]["python"]["gevent"] is not None:
            from bolide.gevent import patching as gevent_patching

            self.gevent_fault = gevent_patching.prepare(self.settings)
        if described["gunicorn"] and self.gevent_fault is None:
            from bolide.gunicorn import hooks as gunicorn_hooks

            self.gunicorn, self.gunicorn_fault = gunicorn_hooks.made(described["gunicorn"], boot)
        if self.settings["development"] is not None:
            from bolide.development.developing import Development

            self.development = Development(boot, self.native)
            self.log.is_alone = True

    def load(self):
        """Load the applications. Return None, or the reason why they can't be loaded."""
        from bolide import fork_safety

        fault = self.gevent_fault or self.gunicorn_fault
        if fault is not None:
            return fault

        # A worker that loads the application itself keeps everything that it opens.
        loading = None if self.log.is_forked() else fork_safety.LoadWatch()
        with loading or contextlib.nullcontext():
            # The master logs the reason of a generation. A worker may fail to load its application long after startup.
            is_told = self.log.is_forked() and not self.begins_generation
            watched = self.followed or contextlib.nullcontext()
            self.applications, reason = load(self.boot, self.hooks, watched, self.development, is_told)
            if reason is None:
                self.uwsgi.note_applications(self.applications)
                if self.settings["language"]["python"]["gevent"] is not None:
                    from bolide.gevent import patching as gevent_patching

                    reason = gevent_patching.check(self.applications, self.settings)
                if self.gunicorn is not None:
                    self.applications = self.gunicorn.around_all(self.applications)
                if self.settings["reloading"]["warmup"]:
                    from bolide import internal_requests

                    internal_requests.warm_up(self.applications, self.settings)
        findings = loading.findings() if reason is None and loading is not None else None
        if findings is None:
            return reason
        safety = self.settings["application"]["fork_safety"]
        if safety == "Lazy":
            self.is_unshared = True
            self.log.tell(f"{findings}; so each loads the application itself (fork-safety = lazy)")
            return None
        findings = f"{findings}. {fork_safety.ADVICE}"
        if safety == "Refuse":
            return f"{findings} (fork-safety = refuse)"
        self.log.tell(f"WARNING: {findings}")
        return None

    def imports(self):
        """Return the files of the imported modules, for `py-autoreload`."""
        return self.followed.unreported()

    def registrations(self):
        """Return what the application has registered for uWSGI's signals, for the master, or None."""
        return self.uwsgi.signals.report()

    def call(self, name, argument, counts_answer):
        """Call a function that a hook names. Return None, or the reason of its failure."""
        from bolide.hooks import call_named

        return call_named(name, argument, counts_answer)

    def freeze(self):
        """Freeze all loaded objects, so that workers share their pages instead of copying them at their first collection."""
        import gc

        if self.gunicorn is not None and not self.log.is_forked():
            self.gunicorn.begin()
        gc.collect()
        if self.settings["recycling"]["refork_after"] and not self.log.is_forked():
            from bolide import succession

            self.lineage = succession.Lineage()
        gc.freeze()
        # The master asks for the stack of a thread that exceeds its time limit before it kills the worker, and of a worker that
        # does not begin to serve. Workers must have the handler from their first moment on, because the signal's default action
        # ends the process.
        self.native.write_stack_at_signal()

    def fork(self, is_worker):
        """Fork this process. Return the result of ``os.fork``."""
        from bolide.gevent.patching import fork

        if self.gunicorn is None or not is_worker:
            return fork()
        self.gunicorn.before_fork()
        pid = fork()
        self.gunicorn.after_fork(pid)
        return pid

    def note_end(self, pid):
        """A worker's process has exited."""
        if self.gunicorn is not None:
            self.gunicorn.note_end(pid)

    def become_worker(self, number):
        """Become the worker of this number. Runs after the fork."""
        self.log.name_process(number)
        name_process(self.native, self.settings, f"worker {number}")
        take_cpus(number, self.settings["workers"]["cpus_of_each"])
        if not self.was_worker:
            self.register_hooks()
        if self.lineage is not None:
            self.lineage.begin_worker()
        if self.gunicorn is not None:
            self.gunicorn.begin_worker()
        self.join_debugger()

    def register_hooks(self):
        self.was_worker = True
        # A child that a view forks shares the worker's sockets. If it returns from the view, it must not serve.
        os.register_at_fork(
            before=self.native.prepare_fork, after_in_child=self.native.note_child, after_in_parent=self.native.note_fork
        )
        statistics = self.settings["statistics"]
        if statistics["metrics"] or (statistics["server"] or {}).get("is_http"):
            import gc

            gc.callbacks.append(self.native.note_collection)

    def release_for_fork(self, own):
        """Close what the application can open again. Return a line for each other thing that forks can't share."""
        if any(interface == "asgi" for _, _, interface in self.applications):
            return ["it serves an ASGI application in an event loop, which can't be forked"]
        return self.lineage.release(own)

    def rehearse_fork(self):
        """Make the requests of `warmup` as a worker does. Return what `release_for_fork` returns afterwards."""
        from bolide import internal_requests, succession

        self.lineage = succession.Lineage()
        self.lineage.begin_worker()
        internal_requests.warm_up(self.applications, self.settings)
        return self.release_for_fork([])

    def fork_prototype(self):
        """Fork a worker that has drained. Return the result of ``os.fork``."""
        from bolide.gevent.patching import fork

        return fork()

    def become_prototype(self):
        """This process is a fork of a worker, and a prototype from now on."""
        self.has_served = False
        self.log.name_process(0)
        name_process(self.native, self.settings, "prototype")
        self.lineage.become_prototype()

    def join_debugger(self):
        if "_BOLIDE_DEBUGGER" in os.environ:
            from bolide.development import debuggers

            debuggers.join()

    def undergo_trial(self):
        """Have the application answer `reload-probe` before the worker serves."""
        self.is_on_trial = True

    def begin_generation(self):
        """This worker does not replace another one of its generation."""
        scaling = self.settings["scaling"]
        # With `cheaper`, `cheap` and `idle` it may come when others have served already.
        self.begins_generation = scaling["cheaper"] is None and scaling["idle_ms"] is None and not scaling["starts_empty"]

    def become_helper(self, number):
        """Become the helper of this number. Runs after the fork."""
        from bolide.helpers import kinds

        self.helper = self.uwsgi.helper = kinds.made(self, number)
        if hasattr(self.helper, "mule_get_msg"):
            self.uwsgi.mule = self.helper
        name_process(self.native, self.settings, self.helper.name)
        self.join_debugger()

    def help(self, link):
        """Do the helper's work until its end. Return the exit status."""
        return self.helper.run(link)

    def serve(self, assignment):
        """Serve until the worker exits. Return the exit status."""
        if self.followed is not None:
            self.followed.follow(assignment.report_imports)
        named = self.settings["language"]["python"]["reload_on"]
        if any(named.values()):
            from bolide.reload_on import ReloadOn

            min_lifetime_ms = self.settings["recycling"]["min_lifetime_ms"]
            self.log.after_exception = ReloadOn(named, self.native.ask_for_replacement, min_lifetime_ms)
        try:
            self.uwsgi.note_worker()
            if self.development is not None:
                self.development.note_success()
                self.development.watch_debuggers()
            elif self.boot["at_terminal"] or "bolide.development.debuggers" in sys.modules:
                from bolide.development import debuggers

                debuggers.follow_halts(self.native, keeps_breakpoints=False)
            if self.settings["language"]["python"]["server_loggers"] is not None:
                from bolide import server_loggers

                server_loggers.note_loaded()
            self.hooks.begin_worker()
            if self.gunicorn is not None:
                self.gunicorn.note_loaded(self.applications)
            if not self.may_serve(assignment):
                return self.native.EXIT_LOAD_FAILED
            trial = None
            if self.is_on_trial and self.settings["reloading"]["probe"]:
                from bolide import internal_requests

                trial = internal_requests.Trial(self.native, assignment, self.applications, self.settings)
            if any(interface == "asgi" for _, _, interface in self.applications):
                from bolide import asgi

                if self.uwsgi.hook("after_req_hook"):
                    self.log.tell("uwsgi.after_req_hook is set but not called: it is for WSGI applications only")
                status = asgi.serve(self.native, assignment, self.applications, self.settings, trial, self.development)
                if self.development is not None and self.development.stand_in is not None:
                    # The application has not started, and no other worker serves: serve its error page.
                    self.native.serve(assignment, [("", self.development.stand_in)], self.wsgi, None)
                    status = 0
                self.has_served = status == 0
                return status
            if trial is not None and not trial.passes():
                return self.native.EXIT_LOAD_FAILED
            applications = [(mount, callable) for mount, callable, _ in self.applications]
            after_request = self.uwsgi.hook("after_req_hook")
            if self.settings["language"]["python"]["gevent"]:
                from bolide.gevent import worker as gevent_worker

                gevent_worker.serve(self.native, assignment, applications, after_request, self.settings)
            else:
                self.native.serve(assignment, applications, self.wsgi, after_request)
            self.has_served = True
        except Exception as error:
            self.log.log_exception(error, "the worker itself", is_ours=True)
            return 1
        return 0

    def load_urlconf(self):
        """Import Django's URLconf before this worker serves. Return None, or the reason why it can't be imported.

        That is not done in the prototype: views may connect to databases when they are imported, and workers can't share
        connections.
        """
        from bolide.loading import django_projects

        try:
            django_projects.load_urlconf()
        except (Exception, SystemExit) as error:
            # A module that exits while it is imported must not end each worker.
            self.log.log_exception(error, "loading Django's URLconf")
            return f"Django's URLconf can't be imported: {type(error).__name__}: {error}"
        return None

    def may_serve(self, assignment):
        """Return whether the part of the application that is imported late lets this worker serve."""
        reason = self.load_urlconf()
        if reason is None:
            return True
        if self.is_on_trial:
            assignment.note_failure(reason)
            return False
        # With uWSGI such a project starts, and may recover: Django tries again at each request.
        self.log.tell(f"WARNING: {reason}; requests fail until it can be imported")
        return True

    def end(self):
        """Call the application's functions for a worker's end."""
        if self.has_served:
            if self.gunicorn is not None:
                self.gunicorn.end_worker()
            self.hooks.end_worker()


def finish(native):
    """The last step before the interpreter ends. The interpreter restores the default action of signals, which would kill the
    process.
    """
    import signal

    for number in native.GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    native.finish_log()


def stop_without_terminal(*arguments, **more):
    """``sys.breakpointhook`` of processes without a terminal."""
    if arguments or set(more) - {"header"} or os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*arguments, **more)
    from bolide.development import debuggers

    return debuggers.stop_without_terminal(sys._getframe(1), more.get("header"))


def import_native():
    """Import the native module, from the directory of this file if the interpreter does not have the package."""
    home, is_strange = None, False
    if __package__ in (None, ""):
        # It runs as a file, so Python has put this file's directory first in sys.path, where it does not belong.
        directory = os.path.dirname(os.path.abspath(__file__))
        sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != directory]
        home = os.path.dirname(directory)
        is_strange = home not in sys.path
        if is_strange:
            sys.path.append(home)
    try:
        from bolide import _native
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        # A Python that is not supported must not be told to install Bolide.
        advice = "" if type(error).__name__ == "Unsupported" else ". Install Bolide into it: pip install bolide"
        sys.exit(
            f"bolide: the Python of this application ({sys.executable}, version {version}) can't load Bolide: {error}{advice}"
        )
    if is_strange:
        # The package is imported. Its directory may hold other packages, which are the server's and not the application's.
        sys.path.remove(home)
    return _native


def packages_of_virtualenv():
    """Return the package directories of the virtualenv that this interpreter belongs to, which `site` would add to
    ``sys.path``."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    if not os.path.isfile(os.path.join(home, "pyvenv.cfg")):
        return []
    version = "python{}.{}".format(*sys.version_info[:2])
    directories = [os.path.join(home, library, version, "site-packages") for library in ("lib", "lib64")]
    # `lib64` is a link to `lib`, or has the packages with native modules.
    return list(
        {os.path.realpath(directory): directory for directory in reversed(directories) if os.path.isdir(directory)}.values()
    )


def load(boot, hooks, watched, development=None, is_told=False):
    """Load the applications. Return them and None, or None and the reason; the details are in the log.

    With `is_told`, the log also has a reason without details, which no other process logs. The context manager `watched`
    surrounds the imports and sees how they fail. In development, an error page may stand in.
    """
    from bolide import log
    from bolide.development import slow_loading
    from bolide.loading.import_hints import missing_dependency
    from bolide.loading.load import LoadError

    settings = boot["settings"]
    slow_page = None if development is None else development.slow_page()
    try:
        with watched, slow_loading.watched(slow_page, settings["lifecycle"]["load_timeout_ms"]):
            applications = import_all(settings, hooks, boot["generation"] == 1)
            if development is not None:
                from bolide.loading import django_projects

                django_projects.load_urlconf()
                tell = log.tell if boot["generation"] == 1 else lambda _: None
                applications = django_projects.developed(applications, tell)
        after = settings["application"]["chdir_after"]
        if after:
            os.chdir(after)
        if settings["language"]["python"]["catch_exceptions"]:
            from bolide.catch_exceptions import show_exceptions

            applications = [
                (mount, show_exceptions(application) if interface == "wsgi" else application, interface)
                for mount, application, interface in applications
            ]
        if any(interface == "asgi" for _, _, interface in applications):
            if any("|" in mount for mount, _, _ in applications):
                raise LoadError("an ASGI application can't be mounted at a host (vhost): start an instance for each host")
            # Modules that are imported before the fork are shared by workers.
            import bolide.asgi  # noqa: F401
            from bolide.loops import event_loop_factory

            event_loop_factory(settings["asynchronous"]["event_loop"])
        return (applications if development is None else development.wrap(applications)), None
    except LoadError as error:
        failure, reason = error, str(error)
        if is_told:
            log.tell(reason)
    except BaseException as error:
        # SystemExit too: a module that exits while it is imported is not an application.
        log.log_exception(error, "loading the application")
        failure, reason = error, f"{type(error).__name__}: {error}" + missing_dependency(error)
        if boot["generation"] > 1 and holds_exclusively(error):
            reason += "; if the serving generation holds it: `reload-order = stop-first` ends that one first"
    stands_in = None if development is None else development.note_failure(failure)
    if stands_in is None:
        return None, reason
    log.tell(f"the application could not be loaded: {reason}; waiting for the next change")
    return stands_in, None


def import_all(settings, hooks, is_start):
    """Import the modules of the settings, and return the applications. At startup some may be missing."""
    from bolide.loading.load import import_beside, load_applications, set_aliases, set_up_logging
    from bolide.wsgi import nothing_there

    python = settings["language"]["python"]
    set_aliases(python["aliases"], "pymodule-alias")
    import_beside(python["imports"])
    if python["paste_logger"]:
        set_up_logging(settings["applications"])
    if python["logging_file"]:
        apply_logging_file(python)
    # An instance may have only static files and routes.
    applications = load_applications(settings["applications"], is_start) or [("", nothing_there, "wsgi")]
    hooks.look_up()
    set_aliases(python["late_aliases"], "post-pymodule-alias")
    return applications


def apply_logging_file(python):
    """Apply ``log-config``."""
    from bolide.loading.load import set_up_logging_from

    if python["server_loggers"] is None:
        return set_up_logging_from(python["logging_file"])
    from bolide import server_loggers

    server_loggers.around_file(lambda: set_up_logging_from(python["logging_file"]))


def holds_exclusively(error):
    """Return whether loading failed because of a resource that only one process can hold: an address, or a lock."""
    for _ in range(MAX_CAUSES):
        if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EWOULDBLOCK):
            return True
        if re.search(r"(?i)\bf?lock", f"{type(error).__name__} {error}"):
            return True
        error = error.__cause__ or error.__context__
        if error is None:
            break
    return False


def take_cpus(number, count):
    """Bind the worker of this number to its own CPUs (``cpu-affinity``), out of those that the instance may use."""
    if count:
        usable = sorted(os.sched_getaffinity(0))
        first = (number - 1) * count
        os.sched_setaffinity(0, {usable[(first + place) % len(usable)] for place in range(count)})


def name_process(native, settings, what):
    """Names this process in `ps`. The master keeps the command line that it was started with."""
    naming = settings["naming"]
    if naming["auto"]:
        native.set_process_name(f"{naming['prefix']}{naming['name'] or f'bolide {what}'}{naming['suffix']}")
    else:
        native.set_process_name(f"bolide: {what}{label_of(settings['applications'])}")


def label_of(applications):
    """Return the first application for the name of a process: ` [shop.wsgi:app]`, ` [shop.py]`, or ` [shop +2]` of three."""
    if not applications:
        return ""
    kind, source = next(iter(applications[0]["source"].items()))
    if kind == "Text":
        return ""
    label = os.path.basename(source) if kind in ("File", "Pecan") else source
    if applications[0]["callable"]:
        label += f":{applications[0]['callable']}"
    return f" [{label} +{len(applications) - 1}]" if len(applications) > 1 else f" [{label}]"


def check_load():
    """Load the application for ``bolide check --load``, and serve nothing."""
    native = import_native()
    from bolide.loading import load_check

    return load_check.main(made_half(native))


if __name__ == "__main__":
    sys.exit(check_load() if sys.argv[1] == "--rehearse" else main(int(sys.argv[1])))
