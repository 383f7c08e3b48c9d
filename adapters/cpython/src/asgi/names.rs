//! The strings of scopes and messages, made once and interned. The event loop's thread uses them.

use pyo3::ffi;

use crate::names::interned;
use crate::object::Object;

interned! { AsgiNames {
    kind = "type",
    asgi = "asgi",
    http_version = "http_version",
    version_1_0 = "1.0",
    version_2 = "2",
    method = "method",
    scheme = "scheme",
    path = "path",
    raw_path = "raw_path",
    raw_uri = "bolide.raw_uri",
    query_string = "query_string",
    root_path = "root_path",
    headers = "headers",
    subprotocols = "subprotocols",
    subprotocol = "subprotocol",
    client = "client",
    server = "server",
    state = "state",
    extensions = "extensions",
    request_id = "bolide.request_id",
    id = "id",
    tls = "tls",
    server_cert = "server_cert",
    client_cert_chain = "client_cert_chain",
    client_cert_name = "client_cert_name",
    client_cert_error = "client_cert_error",
    tls_version = "tls_version",
    cipher_suite = "cipher_suite",
    status = "status",
    body = "body",
    more_body = "more_body",
    trailers = "trailers",
    more_trailers = "more_trailers",
    links = "links",
    file = "file",
    offset = "offset",
    count = "count",
    text = "text",
    bytes = "bytes",
    code = "code",
    reason = "reason",
    http = "http",
    https = "https",
    ws = "ws",
    wss = "wss",
    websocket_connect = "websocket.connect",
    websocket_receive = "websocket.receive",
    websocket_disconnect = "websocket.disconnect",
    call_soon = "call_soon",
    create_future = "create_future",
    set_result = "set_result",
    set_exception = "set_exception",
    done = "done",
    cancel = "cancel",
    exception = "exception",
    add_done_callback = "add_done_callback",
} }

/// Sets one of these keys. `None`: an exception is set.
pub fn set(dictionary: &Object, key: &Object, value: *mut ffi::PyObject) -> Option<()> {
    // SAFETY: all three live; the dictionary takes references of its own.
    (unsafe { ffi::PyDict_SetItem(dictionary.as_ptr(), key.as_ptr(), value) } == 0).then_some(())
}
