//! ESI errors. One table defines their names and descriptions.

flatout_reason::reasons! {
    /// Error in a template or a reference.
    pub enum EsiError { name, text, }
    PageTooLarge, "esi_page_too_large", "The page is larger than the limit for ESI processing.";
    TagTooLong, "esi_tag_too_long", "A tag is longer than the limit.";
    TagUnclosed, "esi_tag_unclosed", "The page ends within a tag.";
    TagInvalid, "esi_tag_invalid", "A tag has invalid syntax.";
    TagsTooMany, "esi_tags_too_many", "The page has more ESI tags than the limit.";
    ElementUnknown, "esi_element_unknown", "An ESI element is not one of include, remove, comment, try, attempt and except.";
    ElementMisplaced, "esi_element_misplaced", "An element begins or ends where it is not allowed.";
    ElementUnclosed, "esi_element_unclosed", "The page ends before an element or an <!--esi comment does.";
    AttributeInvalid, "esi_attribute_invalid", "An attribute is not name=\"value\", is repeated, or is not UTF-8.";
    SrcMissing, "esi_src_missing", "An include has no src.";
    TryIncomplete, "esi_try_incomplete", "A try does not have exactly one attempt and one except.";
    IncludesTooMany, "esi_includes_too_many", "The page includes more fragments than the limit.";
    TooDeep, "esi_too_deep", "Fragments or try elements are nested deeper than the limit.";
    SrcInvalid, "esi_src_invalid", "A reference is not a URL.";
    SrcScheme, "esi_src_scheme", "A reference is neither http nor https.";
    SrcHost, "esi_src_host", "A reference has a different host or port than the page.";
}
