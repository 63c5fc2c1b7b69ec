//! Inputs of statements: values of SQLite's five types, and statements with parameters.

/// An owned value of one of SQLite's storage classes.
#[derive(Clone, Debug, PartialEq, derive_more::From)]
pub enum Value {
    /// The SQL value NULL.
    Null,
    /// A signed 64-bit integer.
    #[from]
    Integer(i64),
    /// A floating-point number. SQLite stores a NaN as NULL.
    #[from]
    Real(f64),
    /// A UTF-8 string.
    #[from]
    Text(String),
    /// Bytes.
    #[from]
    Blob(Vec<u8>),
}

/// A borrowed value of one of SQLite's storage classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// The SQL value NULL.
    Null,
    /// A signed 64-bit integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A string, normally in UTF-8, which SQLite does not verify.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

/// Values for the parameters of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Parameters {
    /// No parameters.
    #[default]
    None,
    /// Values by position, for `?` and `?1`: exactly one for each parameter.
    Positional(Vec<Value>),
    /// Values by name, for `:name`, `@name` and `$name`. A name without a prefix stands for `:name`. Each name must be a
    /// parameter of the statement; a parameter that is not listed is NULL.
    Named(Vec<(String, Value)>),
}

/// A statement in a batch transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// A single SQL statement.
    pub sql: String,
    /// The values of its parameters.
    pub parameters: Parameters,
}

impl From<Vec<Value>> for Parameters {
    fn from(values: Vec<Value>) -> Self {
        if values.is_empty() { Self::None } else { Self::Positional(values) }
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(value) => Self::Integer(*value),
            Value::Real(value) => Self::Real(*value),
            Value::Text(value) => Self::Text(value.as_bytes()),
            Value::Blob(value) => Self::Blob(value),
        }
    }
}
