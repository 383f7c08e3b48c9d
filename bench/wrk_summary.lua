-- Prints wrk's own counts as one line of JSON. Runs inside wrk, once, after the last request.

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
