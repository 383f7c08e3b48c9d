-- Prints wrk's own counts as one line of JSON, after the last request. With a file name after `--` it posts that file's
-- bytes as JSON instead of asking with GET. Runs inside wrk.

init = function(arguments)
    if arguments[1] then
        local file = assert(io.open(arguments[1], "rb"))
        wrk.method = "POST"
        wrk.headers["Content-Type"] = "application/json"
        wrk.body = file:read("*a")
        file:close()
    end
end

done = function(summary, latency, _)
    local errors = summary.errors
    io.write(string.format(
        'SUMMARY {"requests": %d, "microseconds": %d, "bytes": %d, ',
        summary.requests, summary.duration, summary.bytes))
    io.write(string.format(
        '"errors": {"connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d}, ',
        errors.connect, errors.read, errors.write, errors.status, errors.timeout))
    io.write(string.format(
        '"latency_us": {"p50": %d, "p90": %d, "p99": %d, "p99.9": %d, "max": %d}}\n',
        latency:percentile(50), latency:percentile(90), latency:percentile(99), latency:percentile(99.9), latency.max))
end
