//! Statement that is independent of its caller.

use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgStatement};
use sqlx::{Execute, Postgres, SqlStr};

/// Statement that can be run again.
#[derive(Clone)]
pub(crate) struct SqlStatement {
    sql: SqlStr,
    arguments: Option<PgArguments>,
    is_persistent: bool,
}

impl SqlStatement {
    pub fn of<'q>(mut query: impl Execute<'q, Postgres>) -> Result<SqlStatement, sqlx::Error> {
        let arguments = query.take_arguments().map_err(sqlx::Error::Encode)?;
        let is_persistent = query.persistent();
        Ok(SqlStatement { sql: query.sql(), arguments, is_persistent })
    }

    /// Returns the statement without a name on the server, where it is prepared for one use only.
    pub fn unnamed(self) -> SqlStatement {
        SqlStatement { is_persistent: false, ..self }
    }
}

impl Execute<'_, Postgres> for SqlStatement {
    fn sql(self) -> SqlStr {
        self.sql
    }

    fn statement(&self) -> Option<&PgStatement> {
        None
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        Ok(self.arguments.take())
    }

    fn persistent(&self) -> bool {
        self.is_persistent
    }
}
