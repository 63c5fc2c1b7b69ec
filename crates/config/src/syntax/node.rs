//! The tree: settings with values, properties and blocks, each with its place.

use crate::diagnostic::Span;

/// One setting.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Of the name.
    pub span: Span,
    /// Values behind the name.
    pub arguments: Vec<Value>,
    /// Properties, `name=value`.
    pub properties: Vec<Property>,
    /// The settings in its block; `None` without a block.
    pub children: Option<Vec<Node>>,
}

/// `name=value`.
#[derive(Clone, Debug)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Of the name.
    pub span: Span,
    /// Its value.
    pub value: Value,
}

/// One value, and what stands before it in parentheses.
#[derive(Clone, Debug)]
pub struct Value {
    /// The value.
    pub scalar: Scalar,
    /// The type annotation before it, in parentheses.
    pub annotation: Option<Annotation>,
    /// Where it stands.
    pub span: Span,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// `#true` or `#false`.
    Bool(bool),
    /// `#null`.
    Null,
}

impl Scalar {
    /// The name of its kind in messages.
    pub fn kind(&self) -> &'static str {
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
pub enum Annotation {
    /// `(env)"NAME"`
    Environment,
    /// `(file)"path"`
    File,
}

impl Annotation {
    /// The word in parentheses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Environment => "env",
            Self::File => "file",
        }
    }

    /// The annotation of this name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Environment, Self::File].into_iter().find(|annotation| annotation.name() == name)
    }
}
