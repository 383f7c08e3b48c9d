"""The names of the module ``uwsgi``: the supported ones, and why the others are missing. The error of a missing name, the test of
the type stubs and a page in ``docs`` are generated from this one table.

It knows no implementation, and imports nothing. Runs in every process that loads an application.
"""

#: Supported names, with a description.
HERE = {
    "accepting": "`accepting()` has no effect: a worker accepts connections as soon as it can answer",
    "after_req_hook": "set it to a function, which each worker calls after every response of a WSGI application",
    "applications": "a dict of mount points and applications, once they are loaded",
    "atexit": "set it to a function, which each worker calls when it exits normally",
    "buffer_size": "the maximum size of a request's head in bytes (`buffer-size`)",
    "chunked_read": "`chunked_read([timeout])`: the next part of a chunked body, and `b''` at its end",
    "chunked_read_nb": "the same; it never waits here, because bodies are complete before an application is called",
    "connection_fd": "`connection_fd()`: the number of the connection's descriptor",
    "cores": "threads that a worker may have",
    "disconnect": "`disconnect()` ends the connection to the client, and the application continues",
    "extract": "`extract(path)`: the bytes of a file; other addresses are not supported",
    "get_logvar": "`get_logvar(name)`: a log variable of the request, as bytes, or None",
    "has_threads": "1: threads of the application always run",
    "hostname": "the machine's name, as bytes",
    "i_am_the_lord": "`i_am_the_lord(legion)`: False, there are no legions",
    "i_am_the_spooler": "`i_am_the_spooler()`: None",
    "in_farm": "`in_farm([name])`: None",
    "is_a_reload": "True after a reload (no function, as in uWSGI)",
    "listen_queue": "`listen_queue([socket])`: connections that wait at the first TCP socket, or at the one with this number",
    "log": "`log(text)` writes a line to the log",
    "log_this_request": "`log_this_request()`: logs this request in spite of `disable-logging`",
    "logsize": "`logsize()`: bytes of the log's file",
    "loop": "None",
    "magic_table": "uWSGI's magic variables (`%d`, `%n`, …), bytes for bytes",
    "masterpid": "`masterpid()`: the master's pid; in uWSGI 0 without `master`, but Bolide always has a master",
    "mem": "`mem()`: resident memory and address space of this process, in bytes",
    "micros": "`micros()`: microseconds since 1970",
    "mule_id": "`mule_id()`: 0",
    "numproc": "the number of workers (`processes`)",
    "opt": "the options as they were written: text keys, and bytes, or True for one without a value",
    "post_fork_hook": "set it to a function, which each worker calls before it serves",
    "ready": "`ready()`: True in a worker that serves, else None",
    "ready_fd": "`ready_fd()`: -1, as in uWSGI without an asynchronous engine",
    "reload": "`reload()` asks the master for a reload, as SIGHUP does",
    "request_id": "`request_id()`: the number of requests that this worker has answered",
    "sendfile": "`sendfile(path_or_file[, chunk, position, size])` sends a file as part of the response",
    "set_logvar": "`set_logvar(name, value)` sets a log variable of the request, `%(name)` in `log-format`",
    "set_user_harakiri": "`set_user_harakiri(seconds)`: the time limit of this request from now on; 0 removes it",
    "setprocname": "`setprocname(name)`: the name of this process in `ps`",
    "sockets": "numbers of the listening sockets' descriptors, in a worker",
    "started_on": "seconds since 1970 at which the configuration was read",
    "stop": "`stop()` asks the master for an orderly stop",
    "suspend": "`suspend()` lets other threads run, and returns True",
    "total_requests": "`total_requests()`: the number of requests that all workers have answered since they started",
    "unbit": "None",
    "version": "`b'2.0.31'`: the uWSGI version of this module, which programs compare; Bolide's own is `bolide.__version__`",
    "version_info": "`(2, 0, 31, 0, b'')`",
    "websocket_handshake": "`websocket_handshake([key, origin, protocol])` accepts an HTTP/1.1 WebSocket, with or without TLS",
    "websocket_recv": "`websocket_recv()` waits for the next message",
    "websocket_recv_nb": "`websocket_recv_nb()`: the next message, or `b''` if there is none",
    "websocket_send": "`websocket_send(text)`",
    "websocket_send_binary": "`websocket_send_binary(bytes)`",
    "worker_id": "`worker_id()`: the number of this worker, from 1; 0 while the application is loaded before the fork",
    "workers": "`workers()`: a tuple with a dict for each worker",
}

#: The milestone of names that will never be supported.
NEVER = "never"

#: Names of uWSGI that are missing: their milestone, and what to use until then.
MILESTONES = {
    "services": (
        "part of the services (caches, queues, spooler, mules, locks, signals, metrics)",
        "add_cron add_file_monitor add_rb_timer add_timer alarm cache_clear cache_dec cache_del cache_div cache_exists cache_get "
        "cache_inc cache_keys cache_mul cache_num cache_set cache_update call farm_get_msg farm_msg is_locked lock metric_dec "
        "metric_div metric_get metric_inc metric_mul metric_set metric_set_max metric_set_min mule_get_msg mule_msg queue_get "
        "queue_last queue_pop queue_pull queue_pull_slot queue_push queue_set queue_size queue_slot register_rpc register_signal "
        "rpc rpc_list send_to_spooler set_spooler_frequency sharedarea_inc16 sharedarea_inc32 sharedarea_inc64 sharedarea_inc8 "
        "sharedarea_memoryview sharedarea_object sharedarea_read sharedarea_read16 sharedarea_read32 sharedarea_read64 "
        "sharedarea_read8 sharedarea_readfast sharedarea_rlock sharedarea_unlock sharedarea_wait sharedarea_wlock "
        "sharedarea_write sharedarea_write16 sharedarea_write32 sharedarea_write64 sharedarea_write8 signal signal_received "
        "signal_registered signal_wait SPOOL_IGNORE SPOOL_OK SPOOL_RETRY spool spooler_get_task spooler_jobs spooler_pid unlock "
        "websocket_send_binary_from_sharedarea websocket_send_from_sharedarea",
    ),
    "gevent": (
        "part of uWSGI's asynchronous engines (gevent)",
        "async_connect async_sleep connect close green_schedule is_connected recv send wait_fd_read wait_fd_write",
    ),
    "emperor": ("part of the emperor", "lord_scroll scrolls"),
    NEVER: (
        "not planned; use Python's own means",
        "SymbolsImporter SymbolsZipImporter ZipImporter add_var cl embedded_data offload parsefile route set_warning_message "
        "start_response",
    ),
}

#: Each missing name, and its milestone.
LATER = {name: milestone for milestone, (_, names) in MILESTONES.items() for name in names.split()}

#: Names that applications set, and that do not exist before.
SETTABLE = frozenset({"after_req_hook", "atexit", "post_fork_hook"})

#: The version of uWSGI whose module this is.
VERSION = (2, 0, 31)


def missing(name):
    """Return the error message for a missing name."""
    milestone = LATER.get(name)
    if milestone is None:
        return f"module 'uwsgi' has no attribute {name!r}"
    return (
        f"`uwsgi.{name}` is not supported{'' if milestone == NEVER else ' yet'}: {MILESTONES[milestone][0]}. "
        "With `uwsgi-module = false` applications find no module `uwsgi`, and use their fallback"
    )
