//! Listening sockets at a reload with another configuration, and at an upgrade, where another master takes them over. The master
//! runs it.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use bolide_contract::settings::{Address, Listener};

use super::{Endpoint, Listeners, apply_ownership, bind_one, start_listening};
use crate::error::StartError;
use crate::files::guarded_files::SocketNode;
use crate::privileges::Privileges;

impl Listeners {
    /// The sockets of another configuration. Sockets of this list and of `pending`, the list that was to follow it, are kept if
    /// their address stays; the rest is bound. It never waits, and a failure changes nothing.
    ///
    /// # Errors
    /// As for [`Listeners::bind`].
    pub fn renewed(
        &self,
        pending: Option<&Listeners>,
        wanted: &[Listener],
        owner: Option<&Privileges>,
    ) -> Result<Listeners, StartError> {
        let mut renewed = Listeners::default();
        let pools = [Some(self), pending];
        let known: Vec<(&Rc<OwnedFd>, &Endpoint)> =
            pools.into_iter().flatten().flat_map(|pool| pool.sockets.iter().zip(&pool.endpoints)).collect();
        for listener in wanted {
            let stays = known.iter().find(|(socket, endpoint)| endpoint.asked == listener.address && !renewed.has(socket));
            let (socket, endpoint) = match stays {
                Some((socket, endpoint)) => {
                    let (protocol, is_tls) = (listener.protocol, listener.tls.is_some());
                    (Rc::clone(socket), Endpoint { protocol, is_tls, ..(*endpoint).clone() })
                }
                None => match bind_one(listener, wanted, owner) {
                    Ok((descriptor, endpoint)) => (Rc::new(descriptor), endpoint),
                    Err(refusal) => {
                        for list in pools.into_iter().flatten() {
                            renewed.forget(list);
                        }
                        drop(renewed.end());
                        renewed.remove_files();
                        return Err(StartError::new(format!("{}: {}", listener.origin, refusal.message())));
                    }
                },
            };
            renewed.sockets.push(socket);
            renewed.endpoints.push(endpoint);
        }
        Ok(renewed)
    }

    /// Removes the sockets that are in another list too: the ones that remain are not shared.
    pub fn forget(&mut self, others: &Listeners) {
        let is_shared: Vec<bool> = self.sockets.iter().map(|socket| others.has(socket)).collect();
        let mut shared = is_shared.iter();
        self.sockets.retain(|_| !shared.next().copied().unwrap_or_default());
        let mut shared = is_shared.iter();
        self.endpoints.retain(|_| !shared.next().copied().unwrap_or_default());
    }

    /// Stops listening on the sockets that another list does not have. Returns their queued connections, as [`Listeners::end`].
    pub fn end_all_but(&mut self, kept: &Listeners) -> Vec<(u32, OwnedFd)> {
        self.end_where(|socket| !kept.has(socket))
    }

    /// Applies a changed backlog, mode and owner to sockets that stay. Returns the failures.
    pub fn adjust(&self, before: &[Listener], wanted: &[Listener], owner: Option<&Privileges>) -> Vec<String> {
        let mut troubles = Vec::new();
        for ((socket, endpoint), listener) in self.sockets.iter().zip(&self.endpoints).zip(wanted) {
            let Some(old) = before.iter().find(|old| old.address == listener.address) else { continue };
            // Another listen(2) changes only the length of the queue.
            if old.backlog != listener.backlog
                && endpoint.is_ours
                && let Err(error) = start_listening(socket, listener.backlog)
            {
                troubles.push(format!("{}: the backlog of {} can't be changed: {error}", listener.origin, endpoint.bound));
            }
            if let Some(file) = &endpoint.file
                && (&old.mode, &old.owner) != (&listener.mode, &listener.owner)
                && let Err(message) = apply_ownership(&file.path, listener, owner, Some(file))
            {
                troubles.push(format!("{}: {message}", listener.origin));
            }
        }
        troubles
    }

    /// The endpoints of the sockets that another list does not have.
    pub fn endpoints_beside(&self, others: &Listeners) -> impl Iterator<Item = &Endpoint> {
        self.sockets.iter().zip(&self.endpoints).filter(|(socket, _)| !others.has(socket)).map(|(_, endpoint)| endpoint)
    }

    /// Another master owns the sockets from now on: operations on our copies do not affect it.
    pub fn hand_over(&mut self) {
        for endpoint in &mut self.endpoints {
            (endpoint.is_ours, endpoint.file) = (false, None);
        }
    }

    /// Takes ownership of the sockets that were handed over, with their files.
    pub fn own(&mut self, owner: Option<&Privileges>) {
        self.endpoints.iter_mut().filter(|endpoint| !endpoint.is_ours).for_each(|endpoint| endpoint.own(owner));
    }
}

impl Endpoint {
    /// Takes ownership from the previous master, with the socket's file. An inherited socket still belongs to its owner.
    pub fn own(&mut self, owner: Option<&Privileges>) {
        self.is_ours = !matches!(self.asked, Address::Descriptor(_) | Address::Passed(_));
        if let Address::Unix(path) = &self.asked {
            self.file = SocketNode::find(path, owner).ok().map(|node| node.known(path, owner));
        }
    }
}
