//! The suppliers of a node: those that it calls, and those whose notices it accepts.

use std::path::Path;
use std::sync::Arc;

use crate::config::{ConfigError, Role, Roles};
use crate::fulfilment::supply::{self, Notices, SettingsError, Supplier};

/// Suppliers, as far as a node's roles need them. A node that only serves the API reads no secret for calls.
#[derive(Debug, Default)]
pub(super) struct Suppliers {
    pub called: Vec<Arc<dyn Supplier>>,
    pub notices: Notices,
}

impl Suppliers {
    /// Reads the suppliers from their file, if the node has one.
    ///
    /// # Errors
    /// If the file, or one that it names, is invalid.
    pub fn open(file: Option<&Path>, roles: &Roles) -> Result<Suppliers, ConfigError> {
        let invalid = |error: SettingsError| ConfigError(error.to_string());
        let for_role = |role| file.filter(|_| roles.include(role));
        let called = supply::open(for_role(Role::Fulfilment)).map_err(invalid)?;
        let notices = for_role(Role::Api).map(Notices::read).transpose().map_err(invalid)?.unwrap_or_default();
        Ok(Suppliers { called, notices })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_node_reads_only_the_secrets_that_its_roles_need() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("suppliers.toml");
        let supplier = "[[supplier]]\nname = \"acme\"\norder_url = \"https://supplier.example/orders\"\n\
            status_url = \"https://supplier.example/orders/{key}\"\ntoken_url = \"https://supplier.example/token\"\n\
            client_id = \"ledger\"\nclient_secret_file = \"client\"\nnotice_secret_file = \"notices\"\n";
        std::fs::write(&path, supplier).unwrap();
        let write_private = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        };
        let open = |roles: &str| {
            let opened = Suppliers::open(Some(&path), &roles.parse().unwrap()).map_err(|error| error.to_string())?;
            Ok::<_, String>((opened.called.len(), opened.notices.of("acme").is_some()))
        };
        assert!(open("api").unwrap_err().contains("notice_secret_file"));
        assert!(open("fulfilment").unwrap_err().contains("client_secret_file"));
        write_private("notices", "the secret of the notices");
        assert_eq!(open("api"), Ok((0, true)));
        std::fs::remove_file(directory.path().join("notices")).unwrap();
        write_private("client", "the secret of the client");
        assert_eq!(open("fulfilment"), Ok((1, false)));
        assert_eq!(open("projector,delivery"), Ok((0, false)));
    }
}
