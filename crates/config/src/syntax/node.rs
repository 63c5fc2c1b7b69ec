//! The tree: settings with values, properties and blocks, each with its place.

use crate::diagnostic::Span;

/// A setting.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name of the setting, with escapes resolved.
    pub name: String,
    /// The span of the name.
    pub span: Span,
    /// The values after the name.
    pub arguments: Vec<Value>,
    /// The properties (`name=value`), in written order.
    pub properties: Vec<Property>,
    /// The settings in its block; `None` if it has no block.
    pub children: Option<Vec<Node>>,
}

/// A property: `name=value`.
#[derive(Clone, Debug)]
pub struct Property {
    /// The name before the `=`.
    pub name: String,
    /// The span of the name.
    pub span: Span,
    /// The value after the `=`.
    pub value: Value,
}

/// A value, with its annotation if it has one.
#[derive(Clone, Debug)]
pub struct Value {
    /// The value itself, or what the annotation refers to.
    pub scalar: Scalar,
    /// The annotation in parentheses before the value.
    pub annotation: Option<Annotation>,
    /// The span of the value and its annotation.
    pub span: Span,
}

/// A value without an annotation.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A string, with escapes resolved.
    Text(String),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction or an exponent, or `#inf`, `#-inf` or `#nan`.
    Float(f64),
    /// A boolean: `#true` or `#false`.
    Bool(bool),
    /// The keyword `#null`.
    Null,
}

impl Scalar {
    /// The name of the type, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Bool(_) => "a boolean",
            Self::Null => "#null",
        }
    }
}

/// An annotation that says where the value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// From an environment variable: `(env)"NAME"`.
    Environment,
    /// From a file: `(file)"path"`.
    File,
}

impl Annotation {
    /// The word between the parentheses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Environment => "env",
            Self::File => "file",
        }
    }

    /// The annotation with this name, if there is one.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Environment, Self::File].into_iter().find(|annotation| annotation.name() == name)
    }
}
