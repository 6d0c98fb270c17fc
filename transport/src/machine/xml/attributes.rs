//! The attributes of an element: those that are understood are taken out, the rest is kept.

use roxmltree::{Document, Node};

use super::XmlError;
use crate::machine::Attributes;

/// The longest value that is kept.
const VALUE_BYTES_MAX: usize = 4096;

/// An element with the attributes that haven't been taken yet.
pub(super) struct Element<'a, 'input> {
    document: &'a Document<'input>,
    node: Node<'a, 'input>,
    pub(super) left: Attributes,
}

impl<'a, 'input> Element<'a, 'input> {
    /// # Errors
    ///
    /// If a value is far too long.
    pub(super) fn new(document: &'a Document<'input>, node: Node<'a, 'input>) -> Result<Self, XmlError> {
        let plain = node.attributes().filter(|attribute| attribute.namespace().is_none());
        let left = plain.map(|attribute| (attribute.name().to_owned(), attribute.value().to_owned())).collect();
        let element = Element { document, node, left };
        match element.left.iter().find(|(_, value)| value.len() > VALUE_BYTES_MAX) {
            Some((name, value)) => {
                let what = format!("the value of {name} has {} bytes", value.len());
                Err(element.wrong(name, what, &format!("{VALUE_BYTES_MAX} at most")))
            }
            None => Ok(element),
        }
    }

    /// An error about an attribute, or about the element if it has none of that name.
    pub(super) fn wrong(&self, name: &str, what: String, expected: &str) -> XmlError {
        let attribute = self.node.attributes().find(|attribute| attribute.name() == name);
        let at = attribute.map_or(self.node.range().start, |attribute| attribute.range().start);
        let position = self.document.text_pos_at(at);
        XmlError::Format { line: position.row, column: position.col, what, expected: expected.to_owned() }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.left.remove(name)
    }

    /// An attribute that must be understood if it is there.
    pub(super) fn parse<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, XmlError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match parse(&value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(self.wrong(name, format!("{name}={value:?} of <{}>", self.node.tag_name().name()), expected)),
        }
    }

    /// A number.
    pub(super) fn number<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>, XmlError> {
        self.parse(name, "a whole number", |value| value.trim().parse().ok())
    }

    /// A number with hexadecimal digits.
    pub(super) fn hexadecimal(&mut self, name: &str, example: &str) -> Result<Option<u32>, XmlError> {
        self.parse(name, &format!("a hexadecimal number such as {example}"), |value| {
            u32::from_str_radix(value.strip_prefix("0x").unwrap_or(value), 16).ok()
        })
    }

    /// The elements within.
    pub(super) fn children(&self) -> impl Iterator<Item = (&'input str, Node<'a, 'input>)> + use<'a, 'input> {
        let elements = self.node.children().filter(Node::is_element);
        elements.map(|node| (node.tag_name().name(), node))
    }

    pub(super) fn line(&self, node: Node<'_, '_>) -> u32 {
        self.document.text_pos_at(node.range().start).row
    }
}
