"""The names of the module ``uwsgi``: the supported ones, and why the others are missing. The error of a missing name, the test of
the type stubs and a page in ``docs`` are generated from this one table.

It does not know about implementations, and imports nothing. Runs in every process that loads an application.
"""

#: Supported names, with a description.
HERE = {
    "accepting": "`accepting()` has no effect: a worker accepts connections as soon as it can answer",
    "add_cron": "`add_cron(signal, minute, hour, day, month, weekday)`: raises the signal at these times, where -1 means every",
    "add_file_monitor": "`add_file_monitor(signal, path)`: raises the signal when this file or directory changes",
    "add_rb_timer": "`add_rb_timer(signal, seconds[, iterations])`: a timer that ends after this number of times",
    "add_timer": "`add_timer(signal, seconds)`: raises the signal again and again",
    "after_req_hook": "set it to a function, which each worker calls after every response of a WSGI application",
    "alarm": "`alarm(name, text)` raises an alarm (`alarm`) with a str or bytes as its message",
    "applications": "a dict of mount points and applications, once they are loaded",
    "async_connect": "`async_connect(address)` begins a connection to `host:port`, a path or `@name`: its descriptor, or -1",
    "async_sleep": "`async_sleep(seconds)`: `b''`. The next `suspend()` or empty part of the response waits this long",
    "atexit": "set it to a function, which each worker calls when it exits normally",
    "buffer_size": "the maximum size of a request's head in bytes (`buffer-size`)",
    "cache_clear": "`cache_clear([cache])` deletes all items",
    "cache_dec": "`cache_dec(key[, number, expires, cache])` subtracts from a number",
    "cache_del": "`cache_del(key[, cache])`: True, or None if there is no such item",
    "cache_div": "`cache_div(key[, number, expires, cache])` divides a number, which becomes 0 if the divisor is 0",
    "cache_exists": "`cache_exists(key[, cache])`: True or None",
    "cache_get": "`cache_get(key[, cache])`: the value, as bytes, or None",
    "cache_inc": "`cache_inc(key[, number, expires, cache])` adds to a number",
    "cache_keys": "`cache_keys([cache])`: a list of the keys, as bytes",
    "cache_mul": "`cache_mul(key[, number, expires, cache])` multiplies a number",
    "cache_num": "`cache_num(key[, cache])`: a number, 0 if there is none",
    "cache_set": "`cache_set(key, value[, expires, cache])`: True, or None if the key exists or there is no room",
    "cache_update": "`cache_update(key, value[, expires, cache])`: the same, but replaces the value of a key that exists",
    "call": "`call(name, …)` calls a function of `register_rpc` with bytes, and returns bytes or None",
    "chunked_read": "`chunked_read([timeout])`: the next part of a chunked body, and `b''` at its end",
    "chunked_read_nb": "the same. It never waits, because bodies are complete before an application is called",
    "close": "`close(descriptor)` closes it",
    "connect": "`connect(address[, timeout])`: the same, and waits for the connection, without a timeout for 3 seconds",
    "connection_fd": "`connection_fd()`: the number of the connection's descriptor",
    "cores": "threads that a worker may have, or its greenlets with `gevent`",
    "disconnect": "`disconnect()` ends the connection to the client, and the application continues",
    "extract": "`extract(path)`: the bytes of a file. Other addresses are not supported",
    "farm_get_msg": "`farm_get_msg()`, in a mule: waits for a message to one of its farms",
    "farm_msg": "`farm_msg(farm, message)` sends a message to any mule of a farm, and returns None",
    "get_logvar": "`get_logvar(name)`: a log variable of the request, as bytes, or None",
    "green_schedule": "the same as `suspend`",
    "has_threads": "1: threads of the application always run",
    "hostname": "the machine's name, as bytes",
    "i_am_the_lord": "`i_am_the_lord(legion)`: False, there are no legions",
    "i_am_the_spooler": "`i_am_the_spooler()`: True in a spooler, else None",
    "in_farm": "`in_farm([name])`: True in a mule of this farm, or of any, else None",
    "is_a_reload": "True after a reload (no function, as in uWSGI)",
    "is_connected": "`is_connected(descriptor)`: True if it is a socket without an error",
    "is_locked": "`is_locked([number])`: True if a thread of any process holds a lock of the application",
    "listen_queue": "`listen_queue([socket])`: connections that wait at the first TCP socket, or at the one with this number",
    "lock": "`lock([number])` waits for a lock that all processes share: 0, or up to `locks`",
    "log": "`log(text)` writes a line to the log",
    "log_this_request": "`log_this_request()`: logs this request in spite of `disable-logging`",
    "logsize": "`logsize()`: bytes of the log's file",
    "loop": "`b'gevent'` with the option `gevent`, else None",
    "magic_table": "uWSGI's magic variables (`%d`, `%n`, …), bytes for bytes",
    "masterpid": "`masterpid()`: the master's pid. Bolide always has a master, while uWSGI returns 0 without `master`",
    "mem": "`mem()`: resident memory and address space of this process, in bytes",
    "metric_dec": "`metric_dec(name[, number])` subtracts 1 or the number",
    "metric_div": "`metric_div(name[, number])` divides, and returns None for 0",
    "metric_get": "`metric_get(name)`: the value of a metric, or 0 if there is none of this name",
    "metric_inc": "`metric_inc(name[, number])` adds 1 or the number: True, or None if the application may not change the metric",
    "metric_mul": "`metric_mul(name[, number])` multiplies",
    "metric_set": "`metric_set(name, number)`",
    "metric_set_max": "`metric_set_max(name, number)` sets a metric that is smaller",
    "metric_set_min": "`metric_set_min(name, number)` sets a metric that is larger",
    "micros": "`micros()`: microseconds since 1970",
    "mule_get_msg": "`mule_get_msg([signals, farms, buffer_size, timeout])`, in a mule: a message, or `b''` after this time",
    "mule_id": "`mule_id()`: the number of this mule, from 1, or 0 in other processes",
    "mule_msg": "`mule_msg(message[, mule])` sends to any mule, to one by its number or to a farm. False if the queue is full",
    "mule_msg_hook": "set it to a function, which a mule without code of its own calls with each message",
    "numproc": "the number of workers (`processes`)",
    "opt": "the options as they were written: text keys, and bytes, or True for one without a value",
    "post_fork_hook": "set it to a function, which each worker calls before it serves",
    "queue_get": "`queue_get(slot)`: the item in a slot of the queue, or None",
    "queue_last": "`queue_last([count])`: the newest item, or a list of the newest ones",
    "queue_pop": "`queue_pop()` takes the newest item, or returns None if there is none",
    "queue_pull": "`queue_pull()` takes the oldest item, or returns None if there is none",
    "queue_pull_slot": "`queue_pull_slot()`: the slot of the next pull",
    "queue_push": "`queue_push(item)` adds an item to the queue, or returns None if it is empty or too large",
    "queue_set": "`queue_set(slot, item)` replaces an item",
    "queue_size": "the number of slots (`queue`)",
    "queue_slot": "`queue_slot()`: the slot of the next push",
    "ready": "`ready()`: True in a worker that is ready, else None",
    "ready_fd": "`ready_fd()`: the descriptor that was ready in the last `suspend()`, or -1 after a timeout and without `gevent`",
    "recv": "`recv(descriptor[, size])`: up to 4096 bytes, or None at the end, after an error, and if no data is available",
    "register_rpc": "`register_rpc(name, function)`: makes it callable by its name in this process, and in those forked later",
    "register_signal": "`register_signal(number, target, function)`: the function that runs at this signal, and where",
    "reload": "`reload()` asks the master for a reload, as SIGHUP does",
    "request_context": "`request_context()`: this request, for `websocket_*(…, request_context=…)` in other greenlets",
    "request_id": "`request_id()`: the number of requests that this worker has answered",
    "rpc": "`rpc(None, name, …)`: as `call`, but functions of other servers can't be called",
    "rpc_list": "`rpc_list()`: the names of the functions of `register_rpc`, as bytes",
    "send": "`send(descriptor, bytes)`: True, or None after an error. The form without a descriptor raises a TypeError",
    "send_to_spooler": "the same as `spool`",
    "sendfile": "`sendfile(path_or_file[, chunk, position, size])` sends a file as part of the response",
    "set_logvar": "`set_logvar(name, value)` sets a log variable of the request, `%(name)` in `log-format`",
    "set_spooler_frequency": "`set_spooler_frequency(seconds)`: `spooler-frequency` of all spoolers of this instance from now on",
    "set_user_harakiri": "`set_user_harakiri(seconds)` limits this request, message or job from now on. 0 removes the limit",
    "setprocname": "`setprocname(name)`: the name of this process in `ps`",
    "sharedarea_dec16": "`sharedarea_dec16(id, position[, amount])` subtracts from a number",
    "sharedarea_dec32": "`sharedarea_dec32(id, position[, amount])` subtracts from a number",
    "sharedarea_dec64": "`sharedarea_dec64(id, position[, amount])` subtracts from a number",
    "sharedarea_dec8": "`sharedarea_dec8(id, position[, amount])` subtracts from a number",
    "sharedarea_inc16": "`sharedarea_inc16(id, position[, amount])` adds to a number",
    "sharedarea_inc32": "`sharedarea_inc32(id, position[, amount])` adds to a number",
    "sharedarea_inc64": "`sharedarea_inc64(id, position[, amount])` adds to a number",
    "sharedarea_inc8": "`sharedarea_inc8(id, position[, amount])` adds to a number",
    "sharedarea_inclong": "the same as `sharedarea_inc64`",
    "sharedarea_memoryview": "`sharedarea_memoryview(id)`: a memoryview of an area, whose changes do not take a lock",
    "sharedarea_object": "`sharedarea_object(id)`: the same",
    "sharedarea_read": "`sharedarea_read(id, position[, length])`: bytes of an area",
    "sharedarea_read16": "`sharedarea_read16(id, position)`: a signed number of 16 bits",
    "sharedarea_read32": "`sharedarea_read32(id, position)`: a signed number of 32 bits",
    "sharedarea_read64": "`sharedarea_read64(id, position)`: a signed number of 64 bits",
    "sharedarea_read8": "`sharedarea_read8(id, position)`: a signed number of 8 bits",
    "sharedarea_readbyte": "the same as `sharedarea_read8`",
    "sharedarea_readfast": "the same",
    "sharedarea_readlong": "the same as `sharedarea_read64`",
    "sharedarea_rlock": "`sharedarea_rlock(id)` locks an area for reading, until `sharedarea_unlock`",
    "sharedarea_unlock": "`sharedarea_unlock(id)` releases the area that this thread has locked",
    "sharedarea_update": "`sharedarea_update(id)` announces a change that was made through a memoryview",
    "sharedarea_wait": "`sharedarea_wait(id[, frequency, seconds])` waits for the next change. ValueError after the time",
    "sharedarea_wlock": "`sharedarea_wlock(id)` locks an area for writing, until `sharedarea_unlock`",
    "sharedarea_write": "`sharedarea_write(id, position, bytes)` writes bytes into an area",
    "sharedarea_write16": "`sharedarea_write16(id, position, number)`",
    "sharedarea_write32": "`sharedarea_write32(id, position, number)`",
    "sharedarea_write64": "`sharedarea_write64(id, position, number)`",
    "sharedarea_write8": "`sharedarea_write8(id, position, number)`",
    "sharedarea_writebyte": "the same as `sharedarea_write8`",
    "sharedarea_writelong": "the same as `sharedarea_write64`",
    "signal": "`signal(number)` raises a signal of this instance. Another instance as a second argument is an error",
    "signal_received": "`signal_received()`: the number of the signal that ended the last `signal_wait` in this thread",
    "signal_registered": "`signal_registered(number)`: True if this process has a handler for the signal, else None",
    "signal_wait": "`signal_wait([number])` waits for any signal, or for this one, and runs its handler",
    "sockets": "numbers of the listening sockets' descriptors, in a worker",
    "spool": "`spool(dict)` or `spool(name=value, ...)` writes a job for a spooler, and returns the path of its file as bytes",
    "SPOOL_IGNORE": "0, a result of `uwsgi.spooler`: the job stays, and is not counted",
    "SPOOL_OK": "-2, a result of `uwsgi.spooler`: the job is done, and is removed",
    "SPOOL_RETRY": "-1, a result of `uwsgi.spooler`: the job stays for a later attempt",
    "spooler": "set it to a function, which spoolers call with the dict of each job",
    "spooler_get_task": "`spooler_get_task(path)`: the dict of a job, or None if it is in progress or missing",
    "spooler_jobs": "`spooler_jobs()`: the paths of the jobs in the first directory",
    "spooler_pid": "`spooler_pid()`: the pid of the first spooler, or 0 while there is none",
    "spooler_pids": "`spooler_pids()`: the pids of all spoolers",
    "spoolers": "the directory of each spooler, as bytes",
    "started_on": "seconds since 1970 at which the configuration was read",
    "stop": "`stop()` asks the master to shut down",
    "suspend": "`suspend()` waits for `wait_fd_read` and so on, or lets other requests or threads run, and returns True",
    "total_requests": "`total_requests()`: the number of requests that all workers have answered since they started",
    "unbit": "None",
    "unlock": "`unlock([number])` releases a lock that this thread holds",
    "version": "`b'2.0.31'`: the uWSGI version of this module, which programs compare. Bolide's own is `bolide.__version__`",
    "version_info": "`(2, 0, 31, 0, b'')`",
    "wait_fd_read": "`wait_fd_read(descriptor[, timeout])`: `b''`. The next `suspend()` or empty part waits until it is readable",
    "wait_fd_write": "`wait_fd_write(descriptor[, timeout])`: the same, until it is writable",
    "websocket_handshake": "`websocket_handshake([key, origin, protocol])` accepts an HTTP/1.1 WebSocket, with or without TLS",
    "websocket_recv": "`websocket_recv()` waits for the next message",
    "websocket_recv_nb": "`websocket_recv_nb()`: the next message, or `b''` if there is none",
    "websocket_send": "`websocket_send(text)`",
    "websocket_send_binary": "`websocket_send_binary(bytes)`",
    "websocket_send_binary_from_sharedarea": "`websocket_send_binary_from_sharedarea(id, position[, length])`: bytes of an area",
    "websocket_send_from_sharedarea": "`websocket_send_from_sharedarea(id, position[, length])`: text of an area",
    "worker_id": "`worker_id()`: the number of this worker, from 1, or 0 while the application is loaded before the fork",
    "workers": "`workers()`: a tuple with a dict for each worker",
}

#: Names that exist only with an option, as in uWSGI: their beginning, and the option.
CONFIGURED = {
    "queue_": "queue",
    "sharedarea_": "sharedarea",
    "spool": "spooler",
    "send_to_spooler": "spooler",
    "set_spooler_": "spooler",
}

#: Names that exist only with `gevent`, whole. `suspend` and `ready_fd` have a meaning without it.
WITH_GEVENT = frozenset(
    {
        "async_connect",
        "async_sleep",
        "close",
        "connect",
        "green_schedule",
        "is_connected",
        "recv",
        "request_context",
        "send",
        "wait_fd_read",
        "wait_fd_write",
    }
)

#: The milestone of names that will never be supported.
NEVER = "never"

#: Names of uWSGI that are missing: their milestone, and what to use until then.
MILESTONES = {
    "emperor": ("part of the emperor", "lord_scroll scrolls"),
    NEVER: (
        "not planned, because Python has its own means",
        "SymbolsImporter SymbolsZipImporter ZipImporter add_var cl embedded_data offload parsefile route set_warning_message "
        "start_response",
    ),
}

#: Each missing name, and its milestone.
LATER = {name: milestone for milestone, (_, names) in MILESTONES.items() for name in names.split()}

#: Names that applications set, and that do not exist before.
SETTABLE = frozenset({"after_req_hook", "atexit", "mule_msg_hook", "post_fork_hook", "spooler"})

#: The version of uWSGI whose module this is.
VERSION = (2, 0, 31)


def missing(name):
    """Return the error message for a missing name."""
    milestone = LATER.get(name)
    option = option_of(name)
    if option and name in HERE:
        example = " (for example `gevent = 100`)" if option == "gevent" else ""
        return f"`uwsgi.{name}` exists only if the configuration has the option `{option}`{example}"
    if milestone is None:
        return f"module 'uwsgi' has no attribute {name!r}"
    return (
        f"`uwsgi.{name}` is not supported{'' if milestone == NEVER else ' yet'}: {MILESTONES[milestone][0]}. "
        "With `uwsgi-module = false` applications do not find a module `uwsgi`, and use their fallback"
    )


def option_of(name):
    """Return the option without which a name does not exist, or None."""
    if name in SETTABLE:
        return None
    if name in WITH_GEVENT:
        return "gevent"
    return next((option for beginning, option in CONFIGURED.items() if name.startswith(beginning)), None)
