//! Input of statements: values of SQLite's five types, and statements with parameters.

/// A value of one of SQLite's storage classes, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// A signed integer of 64 bits.
    Integer(i64),
    /// A floating-point number. SQLite stores a NaN as NULL.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// A value of one of SQLite's storage classes, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// NULL.
    Null,
    /// A signed integer of 64 bits.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Text: normally UTF-8, which SQLite does not verify.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

/// Values for the parameters of a statement. Each parameter needs exactly one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Parameters {
    /// No parameters.
    #[default]
    None,
    /// By position, for `?` and `?1`.
    Positional(Vec<Value>),
    /// By name, for `:name`, `@name` and `$name`. Without a prefix, `:` is implied.
    Named(Vec<(String, Value)>),
}

/// A statement of a batch transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// One SQL statement.
    pub sql: String,
    /// Values of its parameters.
    pub parameters: Parameters,
}

impl From<Vec<Value>> for Parameters {
    fn from(values: Vec<Value>) -> Self {
        if values.is_empty() { Self::None } else { Self::Positional(values) }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
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
