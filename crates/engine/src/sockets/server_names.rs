//! The hosts that are served, if `server-names` restricts them. It does not know about requests. Workers with that setting run it
//! once for each request.

use bolide_protocol::Fault;

/// `server-names`, resolved at a worker's start.
pub struct ServerNames {
    /// In lower case, without a trailing dot.
    names: Vec<Vec<u8>>,
    /// Suffixes of names, each with its leading dot: `.example.com`.
    domains: Vec<Vec<u8>>,
}

impl ServerNames {
    pub fn new(written: &[String]) -> ServerNames {
        let mut made = ServerNames { names: Vec::new(), domains: Vec::new() };
        for name in written {
            match name.strip_prefix('*') {
                Some(domain) => made.domains.push(domain.as_bytes().to_vec()),
                None => made.names.push(name.as_bytes().to_vec()),
            }
        }
        made
    }

    /// Checks whether a host, which may have a port, is served here.
    ///
    /// # Errors
    /// 421 (RFC 9110 section 15.5.20): it is not. A request of HTTP/1.0 may have no host, and matches no name.
    pub fn check(&self, authority: &[u8]) -> Result<(), Fault> {
        let host = host_of(authority);
        let is_name = |name: &Vec<u8>| host.eq_ignore_ascii_case(name);
        let is_below = |domain: &Vec<u8>| {
            let start = host.len().checked_sub(domain.len()).filter(|&start| start > 0);
            start.is_some_and(|start| host[start..].eq_ignore_ascii_case(domain))
        };
        match self.names.iter().any(is_name) || self.domains.iter().any(is_below) {
            true => Ok(()),
            false => Err(Fault::new(421, "The request's host is not among server-names.")),
        }
    }
}

/// Returns the host without its port and without the root's dot, which does not change its meaning.
fn host_of(authority: &[u8]) -> &[u8] {
    let host = match authority {
        [b'[', ..] => authority.split_inclusive(|&byte| byte == b']').next().unwrap_or_default(),
        _ => authority.split(|&byte| byte == b':').next().unwrap_or_default(),
    };
    host.strip_suffix(b".").unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_served_by_its_name_or_below_a_domain() {
        let names = ServerNames::new(&["shop.example", "*.b.example", "[::1]", "127.0.0.1"].map(str::to_owned));
        for host in [
            "shop.example",
            "SHOP.Example",
            "shop.example.",
            "shop.example:8443",
            "x.b.example",
            "x.y.B.example.:1",
            "[::1]",
            "[::1]:80",
            "127.0.0.1:8000",
        ] {
            assert!(names.check(host.as_bytes()).is_ok(), "{host}");
        }
        for host in [
            "",
            "example",
            "x.shop.example",
            "b.example",
            ".b.example",
            "xb.example",
            "evilb.example",
            "shop.example..",
            "[::2]",
            "::1",
            "127.0.0.1.example",
        ] {
            assert_eq!(names.check(host.as_bytes()).map_err(|fault| fault.status), Err(421), "{host}");
        }
    }
}
