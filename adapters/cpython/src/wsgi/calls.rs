//! Prepares a call of a WSGI application: the application of the request's mount, `environ`, and the callables in it.
//!
//! It knows nothing of the answer. The thread that has read the request runs it.

use std::ptr::null_mut;

use bolide_engine::request::{Body, Request};
use pyo3::ffi;

use crate::call::context::Wsgi;
use crate::environ::{Dictionary, EnvironMemo, Environs};
use crate::exceptions::{lookup_error, raise};
use crate::names::{EnvironKeys, EnvironNames, Methods};
use crate::object::Object;
use crate::start_response::StartResponse;

/// Prepares calls. Each thread has one.
pub struct Calls {
    wsgi: &'static Wsgi,
    environs: Environs,
}

/// A call that is ready.
pub struct PreparedCall {
    /// The application, which the worker owns.
    pub callable: *mut ffi::PyObject,
    pub environ: Object,
    /// The request has a chunked body or an Upgrade field: it may use more of the module `uwsgi` than others.
    pub is_rare: bool,
}

impl Calls {
    /// # Errors
    /// No memory is left.
    pub fn new(wsgi: &'static Wsgi) -> Result<Calls, String> {
        let no_memory = || "out of memory".to_owned();
        let names = EnvironNames::new().ok_or_else(no_memory)?;
        let methods = Methods::new().ok_or_else(no_memory)?;
        let keys = EnvironKeys::new().ok_or_else(no_memory)?;
        Ok(Calls { wsgi, environs: Environs::new(names, methods, keys, wsgi.templates.clone()) })
    }

    /// `"close"`
    pub fn close_name(&self) -> Object {
        self.environs.names.close.clone()
    }

    /// Prepares the call of a request that `start` answers; `core` is the number of the thread or greenlet, if it is not 0.
    /// `None`: an exception is set.
    pub fn prepare(
        &mut self,
        request: &mut Request<'_, EnvironMemo>,
        start: &StartResponse,
        core: Option<&Object>,
    ) -> Option<PreparedCall> {
        let mut environ = self.environs.make(request)?;
        let callable = self.choose(&mut environ, request, start)?;
        self.give_body(&mut environ, std::mem::take(&mut request.body))?;
        if let Some(core) = core {
            environ.set(&self.environs.names.uwsgi_core, core);
        }
        let asks_for_upgrade = request.parts.asks_for_upgrade();
        let is_rare = asks_for_upgrade || request.parts.is_chunked();
        if asks_for_upgrade {
            self.offer_socket(&mut environ, start)?;
        }
        let environ = environ.done()?;
        if is_rare {
            start.keep_environ(&environ);
        }
        Some(PreparedCall { callable, environ, is_rare })
    }

    /// Returns the application of a request, and sets SCRIPT_NAME and PATH_INFO for its mount.
    fn choose(
        &mut self,
        environ: &mut Dictionary,
        request: &mut Request<'_, EnvironMemo>,
        start: &StartResponse,
    ) -> Option<*mut ffi::PyObject> {
        let mounts = &self.wsgi.mounts;
        let number = if mounts.is_by_host() {
            self.set_mount(environ, request.script_name, mounts.below(request.parts.path()));
            let id = self.environs.application_id(environ, &mut request.log_facts)?;
            mounts.of_id(&id)
        } else {
            mounts.choose(&request.parts).map(|choice| {
                let kept = request.forwarded.and_then(|forwarded| forwarded.below(request.parts.path()));
                self.set_mount(environ, request.script_name, kept.or(choice.below));
                choice.number
            })
        };
        match number {
            Ok(number) => {
                request.log_facts.application = number as u32;
                start.state().application.set(number as u32);
                self.wsgi.callables.get(number).map(Object::as_ptr)
            }
            Err(problem) => raise(lookup_error(), &problem),
        }
    }

    /// Moves the mount point from the start of PATH_INFO to SCRIPT_NAME.
    fn set_mount(&self, environ: &mut Dictionary, script_name: &[u8], below: Option<(&[u8], &[u8])>) {
        let Some((mount, rest)) = below else { return };
        match script_name {
            [] => environ.set_text(&self.environs.names.script_name, mount),
            prefix => environ.set_text(&self.environs.names.script_name, &[prefix, mount].concat()),
        }
        environ.set_text(&self.environs.names.path_info, rest);
    }

    fn give_body(&mut self, environ: &mut Dictionary, body: Body) -> Option<()> {
        let input = match body {
            Body::Empty => return Some(()),
            Body::Memory(bytes) => {
                // SAFETY: the bytes are copied into a new object; both live through the call.
                unsafe {
                    let bytes = Object::owned(ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as isize))?;
                    let arguments = [bytes.as_ptr()];
                    Object::owned(ffi::PyObject_Vectorcall(self.wsgi.body_in_memory.as_ptr(), arguments.as_ptr(), 1, null_mut()))?
                }
            }
            Body::File { file, .. } => {
                use std::os::fd::IntoRawFd;
                // SAFETY: the descriptor becomes the Python file's, which closes it.
                unsafe {
                    let number = Object::owned(ffi::PyLong_FromLong(file.into_raw_fd().into()))?;
                    let arguments = [number.as_ptr()];
                    Object::owned(ffi::PyObject_Vectorcall(self.wsgi.body_in_file.as_ptr(), arguments.as_ptr(), 1, null_mut()))?
                }
            }
        };
        environ.set(&self.environs.names.wsgi_input, &input);
        Some(())
    }

    /// Offers the connection to libraries that speak WebSocket on it themselves, under the names that they look for.
    fn offer_socket(&self, environ: &mut Dictionary, start: &StartResponse) -> Option<()> {
        let arguments = [start.taker()?];
        let pointers = [arguments[0].as_ptr()];
        // SAFETY: the callable and its argument live through the call; the result is ours.
        let socket = unsafe {
            let made = ffi::PyObject_Vectorcall(self.wsgi.connection_socket.as_ptr(), pointers.as_ptr(), 1, null_mut());
            Object::owned(made)?
        };
        environ.set(&self.environs.names.gunicorn_socket, &socket);
        environ.set(&self.environs.names.werkzeug_socket, &socket);
        Some(())
    }
}
