//! Listening sockets that change hands: what becomes of them at a reload that brings another configuration, and at an upgrade, where another
//! master has them. The master runs it.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use bolide_contract::settings::{Address, Listener};

use super::{Endpoint, Listeners, Refusal, apply_ownership, bind_one, start_listening};
use crate::error::StartError;
use crate::files::guarded_files::SocketNode;
use crate::processes::privileges::Privileges;

impl Listeners {
    /// The sockets of another configuration: those of this list, and of one that was to follow it, stay where the address is the same,
    /// the others are bound. Nothing waits here, and nothing has changed where it fails.
    ///
    /// # Errors
    /// As of [`Listeners::bind`].
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
                    Err(Refusal::InUse(message) | Refusal::Other(message)) => {
                        for list in pools.into_iter().flatten() {
                            renewed.forget(list);
                        }
                        drop(renewed.end());
                        renewed.remove_files();
                        return Err(StartError::new(format!("{}: {message}", listener.origin)));
                    }
                },
            };
            renewed.sockets.push(socket);
            renewed.endpoints.push(endpoint);
        }
        Ok(renewed)
    }

    /// Lets go of the sockets that another list has too: what is left is nobody else's.
    pub fn forget(&mut self, others: &Listeners) {
        let is_shared: Vec<bool> = self.sockets.iter().map(|socket| others.has(socket)).collect();
        let mut shared = is_shared.iter();
        self.sockets.retain(|_| !shared.next().copied().unwrap_or_default());
        let mut shared = is_shared.iter();
        self.endpoints.retain(|_| !shared.next().copied().unwrap_or_default());
    }

    /// Ends listening at the sockets that another list does not have. Gives the connections that waited there, as [`Listeners::end`].
    pub fn end_all_but(&mut self, kept: &Listeners) -> Vec<(u32, OwnedFd)> {
        self.end_where(|socket| !kept.has(socket))
    }

    /// Gives sockets that stay the backlog, mode and owner that the configuration has by now. Gives what could not be done.
    pub fn adjust(&self, before: &[Listener], wanted: &[Listener], owner: Option<&Privileges>) -> Vec<String> {
        let mut troubles = Vec::new();
        for ((socket, endpoint), listener) in self.sockets.iter().zip(&self.endpoints).zip(wanted) {
            let Some(old) = before.iter().find(|old| old.address == listener.address) else { continue };
            // listen(2) again changes the length of the queue alone.
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

    /// The places of the sockets that another list does not have.
    pub fn endpoints_beside(&self, others: &Listeners) -> impl Iterator<Item = &Endpoint> {
        self.sockets.iter().zip(&self.endpoints).filter(|(socket, _)| !others.has(socket)).map(|(_, endpoint)| endpoint)
    }

    /// Another master has the sockets from here on: what we do with our copies changes nothing for it.
    pub fn hand_over(&mut self) {
        for endpoint in &mut self.endpoints {
            (endpoint.is_ours, endpoint.file) = (false, None);
        }
    }

    /// The sockets that were handed over are ours, with their files.
    pub fn own(&mut self, owner: Option<&Privileges>) {
        self.endpoints.iter_mut().filter(|endpoint| !endpoint.is_ours).for_each(|endpoint| endpoint.own(owner));
    }
}

impl Endpoint {
    /// Of a socket that was another master's until now, with its file. One that was handed down is its owner's still.
    pub fn own(&mut self, owner: Option<&Privileges>) {
        self.is_ours = !matches!(self.asked, Address::Descriptor(_) | Address::Passed(_));
        if let Address::Unix(path) = &self.asked {
            self.file = SocketNode::find(path, owner).ok().map(|node| node.known(path, owner));
        }
    }
}
