//! Selects the application for a request by uWSGI's rules: by the path with `manage-script-name`, else by SCRIPT_NAME as sent by
//! a reverse proxy. A request that matches no mount point goes to the default application.
//!
//! It does not know about languages. Adapters call it in workers, before each call of the application.

use bolide_contract::settings::ApplicationSettings;

use crate::request::RequestParts;

/// The application selected for a request.
pub struct Choice<'m, 'r> {
    pub number: usize,
    /// With `manage-script-name`: the mount point that matches the path, and the rest of the path.
    pub below: Option<(&'m [u8], &'r [u8])>,
}

/// The mount points of a worker's applications, in load order.
pub struct Mounts {
    paths: Vec<Vec<u8>>,
    /// The application for requests that match no mount point; `None` with `no-default-app`.
    default: Option<usize>,
    manages_path: bool,
    ignores_script_name: bool,
    by_host: bool,
}

impl Mounts {
    pub fn new(paths: Vec<Vec<u8>>, settings: &ApplicationSettings) -> Mounts {
        // As in uWSGI: the first application without a mount point, or with a path as its mount point.
        let default = paths.iter().position(|path| path.is_empty() || path.starts_with(b"/"));
        Mounts {
            default: default.filter(|_| !settings.no_default_app),
            paths,
            manages_path: settings.manage_script_name,
            ignores_script_name: settings.ignore_script_name,
            by_host: settings.by_host,
        }
    }

    /// Whether [`of_id`](Mounts::of_id) selects the application.
    pub fn is_by_host(&self) -> bool {
        self.by_host
    }

    /// With `vhost`: the application whose mount point is this UWSGI_APPID, else the default one.
    ///
    /// # Errors
    /// The message if no application matches.
    pub fn of_id(&self, id: &[u8]) -> Result<usize, String> {
        let found = self.paths.iter().position(|path| path == id).or(self.default);
        found.ok_or_else(|| format!("no application is mounted at {}", String::from_utf8_lossy(id)))
    }

    /// Whether there is only one application, without a mount point.
    fn is_plain(&self) -> bool {
        matches!(self.paths.as_slice(), [path] if path.is_empty())
    }

    /// Selects the application of a request.
    ///
    /// # Errors
    /// The message if no application matches.
    pub fn choose<'r, Memo>(&self, parts: &RequestParts<'r, Memo>) -> Result<Choice<'_, 'r>, String> {
        if self.is_plain() {
            return Ok(Choice { number: 0, below: None });
        }
        // If a route has set the path, this is already the new one.
        let (script_name, path) = (parts.variable(b"SCRIPT_NAME").unwrap_or_default(), parts.path());
        let below = self.below(path);
        match self.named(below.map_or(script_name, |(mount, _)| mount)) {
            Some(number) => Ok(Choice { number, below }),
            None => Err(format!("no application is mounted at {}", String::from_utf8_lossy(path))),
        }
    }

    /// With `manage-script-name`: returns the longest mount point that is a prefix of the path, and the rest of the path. A slash
    /// at the end of a mount point is part of SCRIPT_NAME, but is ignored in the comparison.
    pub fn below<'p>(&self, path: &'p [u8]) -> Option<(&[u8], &'p [u8])> {
        if !self.manages_path {
            return None;
        }
        let bare = |mount: &[u8]| mount.len() - usize::from(mount.ends_with(b"/"));
        let mounts =
            self.paths.iter().map(Vec::as_slice).filter(|mount| bare(mount) > 0 && is_below(path, &mount[..bare(mount)]));
        // The first of the longest ones.
        let found = mounts.reduce(|best, mount| if bare(mount) > bare(best) { mount } else { best })?;
        Some((found, path.get(found.len()..).unwrap_or_default()))
    }

    /// The application whose mount point is this SCRIPT_NAME, else the default one.
    fn named(&self, script_name: &[u8]) -> Option<usize> {
        let name = if self.ignores_script_name { b"" } else { script_name };
        self.paths.iter().position(|path| path == name).or(self.default)
    }
}

/// `/app` matches the paths `/app` and `/app/x`, but not `/apple`.
fn is_below(path: &[u8], mount: &[u8]) -> bool {
    path.starts_with(mount) && matches!(path.get(mount.len()), None | Some(b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(paths: &[&str], change: impl Fn(&mut ApplicationSettings)) -> Mounts {
        let mut settings = ApplicationSettings { manage_script_name: true, ..ApplicationSettings::default() };
        change(&mut settings);
        Mounts::new(paths.iter().map(|path| path.as_bytes().to_vec()).collect(), &settings)
    }

    #[test]
    fn a_managed_mount_takes_whole_segments_and_the_longest_wins() {
        let made = mounts(&["", "/app", "/app/deep", "/end/"], |_| {});
        for (path, wanted) in [
            ("/app", Some(("/app", ""))),
            ("/app/x", Some(("/app", "/x"))),
            ("/app/deep/x", Some(("/app/deep", "/x"))),
            ("/apple", None),
            ("/", None),
            ("/end", Some(("/end/", ""))),
            ("/end/x", Some(("/end/", "x"))),
        ] {
            let wanted = wanted.map(|(mount, rest): (&str, &str)| (mount.as_bytes(), rest.as_bytes()));
            assert_eq!(made.below(path.as_bytes()), wanted, "{path}");
        }
        assert_eq!(mounts(&["", "/app"], |settings| settings.manage_script_name = false).below(b"/app"), None);
    }

    #[test]
    fn an_identifier_selects_the_application_of_its_host() {
        let made = mounts(&["shop.example|", "shop.example|/admin"], |settings| settings.by_host = true);
        assert_eq!(made.of_id(b"shop.example|/admin"), Ok(1));
        assert_eq!(made.of_id(b"else|").expect_err("no default"), "no application is mounted at else|");
        assert_eq!(mounts(&["shop.example|", ""], |settings| settings.by_host = true).of_id(b"else|"), Ok(1));
    }

    #[test]
    fn the_first_application_is_the_default_one() {
        assert_eq!(mounts(&["/one", "/two"], |_| {}).named(b""), Some(0));
        assert_eq!(mounts(&["/one", "/two"], |_| {}).named(b"/two"), Some(1));
        assert_eq!(mounts(&["/one", ""], |_| {}).named(b"/else"), Some(0));
        assert_eq!(mounts(&["/one", ""], |_| {}).named(b""), Some(1));
        assert_eq!(mounts(&["/one"], |settings| settings.no_default_app = true).named(b"/else"), None);
        assert_eq!(mounts(&["/one", "/two"], |settings| settings.ignore_script_name = true).named(b"/two"), Some(0));
    }
}
