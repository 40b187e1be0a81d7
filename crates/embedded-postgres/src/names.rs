//! Names that a program gives to its server, its roles and its database.

use super::Error;

/// Maximum length of a name, in bytes. With it, the title of a server process shows its cluster's name in full.
const MAX_LENGTH: usize = 28;

/// Names that a program gives to its server. Each is lower-case letters, digits, and underscores, begins with a letter, and has
/// at most 28 characters. The program's name has hyphens instead of underscores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Name of the program, in directories and in the watchdog's command line.
    pub program: String,
    /// Database that the server creates.
    pub database: String,
    /// Superuser role that owns the cluster and the database.
    pub owner: String,
    /// Role that the program logs in as. It can become the runtime role and nothing else.
    pub service: String,
    /// Role that cannot log in and holds no privileges at first. The program's schema grants them.
    pub runtime: String,
}

impl Names {
    /// Derives all names from one. From `shop` it derives the database `shop` and the roles `shop_owner`, `shop_service`, and
    /// `shop_runtime`.
    pub fn new(name: &str) -> Names {
        Names {
            program: name.replace('_', "-"),
            database: name.to_owned(),
            owner: format!("{name}_owner"),
            service: format!("{name}_service"),
            runtime: format!("{name}_runtime"),
        }
    }

    /// Checks that the names can stand in paths, statements and rules, and that no two roles are the same.
    pub(super) fn check(&self) -> Result<(), Error> {
        let Names { program, database, owner, service, runtime } = self;
        let is_name = |text: &str, joint: u8| {
            let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == joint;
            text.len() <= MAX_LENGTH && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.bytes().all(is_part)
        };
        let wrong = [database, owner, service, runtime].into_iter().find(|name| !is_name(name, b'_'));
        if let Some(wrong) = wrong.or(Some(program).filter(|name| !is_name(name, b'-'))) {
            return Err(Error::InvalidName(wrong.clone()));
        }
        match owner == service || owner == runtime || service == runtime {
            true => Err(Error::SameRole),
            false => Ok(()),
        }
    }

    /// Returns the prefix of the names of temporary directories; six random characters follow.
    pub(super) fn temporary_prefix(&self) -> String {
        format!("{}.", self.program)
    }

    /// Returns the name of the mapping from operating system users to roles.
    pub(super) fn map(&self) -> String {
        self.program.replace('-', "_")
    }

    /// Returns the name under which the watchdog runs.
    pub(super) fn watchdog(&self) -> String {
        format!("{}-watchdog", self.program)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_that_need_quotes_or_do_not_fit_are_refused() {
        Names::new("shop").check().unwrap();
        Names::new("my_shop").check().unwrap();
        for wrong in ["", "1shop", "Shop", "a shop", "shop\"", "shop;", "../shop", "_shop", "pg-shop", &"s".repeat(MAX_LENGTH)] {
            assert!(matches!(Names::new(wrong).check(), Err(Error::InvalidName(_))), "{wrong}");
        }
        let names = Names::new("shop");
        assert!(matches!(Names { service: names.owner.clone(), ..names }.check(), Err(Error::SameRole)));
    }
}
