//! Tables of named endings: every refusal, close, failure and outcome of this workspace is one row of one of them.
//!
//! A row gives the variant of an enum, its stable name for logs and counters, and the sentence that says what it means;
//! some tables have a column more, the status that is answered for one. [`reasons!`] makes the enum of them, [`join`]
//! one list of the names of several tables.
//!
//! Absent by design: what any of the tables is about. It depends on no other crate of the workspace.

/// Makes an enum of a table: its variants, documented by their sentences, and a constant function for each column.
///
/// The heading names the columns in the order of the rows, each of which ends in a semicolon. Every table has a `name`
/// and a `text`; between the two may stand one or two columns with a type, or one behind them.
///
/// ```
/// flatout_reason::reasons! {
///     /// Why a door did not open.
///     pub enum Shut {
///         name,
///         /// The status of the answer.
///         status: u16,
///         text,
///     }
///     Locked, "locked", 403, "Nobody has the key.";
///     Gone, "gone", 404, "There is no door.";
/// }
///
/// assert_eq!(Shut::NAMES, ["locked", "gone"]);
/// assert_eq!((Shut::Gone.name(), Shut::Gone.status(), Shut::Gone.text()), ("gone", 404, "There is no door."));
/// ```
///
/// The enum is one byte, which is the index of its row in `ALL`, `NAMES` and `TEXTS`.
#[macro_export]
macro_rules! reasons {
    (
        $(#[$about:meta])* pub enum $table:ident { name, text, }
        $($(#[$note:meta])* $variant:ident, $name:literal, $text:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant, $name, $text;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident { name, $(#[$what:meta])* $column:ident: $type:ty, text, }
        $($(#[$note:meta])* $variant:ident, $name:literal, $cell:literal, $text:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant, $name, $text;)+ }
        $crate::reasons! { @column $table $(#[$what])* $column: $type; $($variant, $cell;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident {
            name,
            $(#[$what:meta])* $column:ident: $type:ty,
            $(#[$what_else:meta])* $second:ident: $second_type:ty,
            text,
        }
        $($(#[$note:meta])* $variant:ident, $name:literal, $cell:literal, $second_cell:literal, $text:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant, $name, $text;)+ }
        $crate::reasons! { @column $table $(#[$what])* $column: $type; $($variant, $cell;)+ }
        $crate::reasons! { @column $table $(#[$what_else])* $second: $second_type; $($variant, $second_cell;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident { name, text, $(#[$what:meta])* $column:ident: $type:ty, }
        $($(#[$note:meta])* $variant:ident, $name:literal, $text:literal, $cell:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant, $name, $text;)+ }
        $crate::reasons! { @column $table $(#[$what])* $column: $type; $($variant, $cell;)+ }
    };
    (
        @table $(#[$about:meta])* $table:ident
        $($(#[$note:meta])* $variant:ident, $name:literal, $text:literal;)+
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $table {
            $($(#[$note])* #[doc = $text] $variant,)+
        }

        impl $table {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The names, in the order of the table.
            pub const NAMES: &'static [&'static str] = &[$($name,)+];

            /// The meanings, in the order of the table.
            pub const TEXTS: &'static [&'static str] = &[$($text,)+];

            /// The stable name, as logs and counters show it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The meaning, in one sentence or a few.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
    (@column $table:ident $(#[$what:meta])* $column:ident: $type:ty; $($variant:ident, $cell:literal;)+) => {
        impl $table {
            $(#[$what])*
            pub const fn $column(self) -> $type {
                match self { $(Self::$variant => $cell,)+ }
            }
        }
    };
}

/// One list of several, in their order, for enums that are joined as one table.
///
/// # Panics
/// When `N` is not the sum of their lengths. In a constant, which is where this belongs, the build fails.
pub const fn join<const N: usize>(lists: &[&[&'static str]]) -> [&'static str; N] {
    let mut joined = [""; N];
    let mut length = 0;
    let mut list = 0;
    while list < lists.len() {
        let mut row = 0;
        while row < lists[list].len() {
            joined[length] = lists[list][row];
            length += 1;
            row += 1;
        }
        list += 1;
    }
    assert!(length == N, "the lists have another length together");
    joined
}

#[cfg(test)]
#[allow(unreachable_pub, dead_code)] // of a table that only a test knows, not everything is asked
mod tests {
    use super::join;

    crate::reasons! {
        /// No column but the two.
        #[derive(PartialOrd, Ord)]
        pub enum Plain { name, text, }
        First, "first", "The first.";
        /// A remark of its own.
        Second, "second", "The second.";
    }

    crate::reasons! {
        /// Two columns more.
        pub enum Wide {
            name,
            /// A number.
            status: u16,
            /// A fact.
            is_ours: bool,
            text,
        }
        Third, "third", 503, true, "The third.";
        Fourth, "fourth", 400, false, "The fourth.";
    }

    crate::reasons! {
        /// One behind the text.
        pub enum Told {
            name,
            text,
            /// The remedy.
            change: &'static str,
        }
        Fifth, "fifth", "The fifth.", "Take another.";
    }

    #[test]
    fn each_column_is_told_by_its_row() {
        assert_eq!(
            (Plain::ALL, Plain::NAMES),
            ([Plain::First, Plain::Second].as_slice(), ["first", "second"].as_slice())
        );
        assert_eq!((Plain::Second.name(), Plain::Second.text()), ("second", "The second."));
        assert!(Plain::First < Plain::Second);
        for (index, row) in Wide::ALL.iter().enumerate() {
            assert_eq!((*row as usize, row.name(), row.text()), (index, Wide::NAMES[index], Wide::TEXTS[index]));
        }
        assert_eq!((Wide::Third.status(), Wide::Third.is_ours()), (503, true));
        assert_eq!((Wide::Fourth.status(), Wide::Fourth.is_ours()), (400, false));
        assert_eq!((Told::Fifth.text(), Told::Fifth.change()), ("The fifth.", "Take another."));
        assert_eq!(size_of::<Wide>(), 1);
    }

    #[test]
    fn lists_are_joined_in_their_order() {
        const NAMES: [&str; 5] = join(&[Plain::NAMES, Told::NAMES, &[], Wide::NAMES]);
        assert_eq!(NAMES, ["first", "second", "fifth", "third", "fourth"]);
        assert_eq!(join::<0>(&[]), [""; 0]);
    }

    #[test]
    #[should_panic(expected = "another length")]
    fn a_list_with_room_to_spare_is_none() {
        let _ = join::<3>(&[Plain::NAMES]);
    }
}
