//! The tree: settings with values, properties and blocks, each with its place.

use crate::diagnostic::Span;

/// One setting.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// Of the name.
    pub(crate) span: Span,
    pub(crate) arguments: Vec<Value>,
    pub(crate) properties: Vec<Property>,
    pub(crate) children: Option<Vec<Node>>,
}

/// `name=value`.
#[derive(Clone, Debug)]
pub(crate) struct Property {
    pub(crate) name: String,
    /// Of the name.
    pub(crate) span: Span,
    pub(crate) value: Value,
}

/// One value, and what stands before it in parentheses.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) scalar: Scalar,
    pub(crate) annotation: Option<Annotation>,
    pub(crate) span: Span,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Text(String),
    Integer(i128),
    Float(f64),
    Bool(bool),
    Null,
}

impl Scalar {
    /// What it is called in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Bool(_) => "#true or #false",
            Self::Null => "nothing",
        }
    }
}

/// Where a value is to be taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Annotation {
    /// `(env)"NAME"`
    Environment,
    /// `(file)"path"`
    File,
}

impl Annotation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Environment => "env",
            Self::File => "file",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::Environment, Self::File].into_iter().find(|annotation| annotation.name() == name)
    }
}
