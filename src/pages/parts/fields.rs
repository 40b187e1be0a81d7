//! Fields of forms. Each one has a label, a hint, and the problems that the API found with it.

use maud::{Markup, html};

use super::super::call::Refusal;
use super::super::form::{Form, KEY, new_key};

/// A form while it is filled in: its values so far, and the refusal of the last attempt.
#[derive(Clone, Copy, Debug)]
pub struct Filled<'a> {
    pub form: &'a Form,
    pub refusal: Option<&'a Refusal>,
}

impl Filled<'_> {
    /// Returns the problems of a field, and of the entries of a list that stands in it.
    fn problems(&self, name: &str) -> Vec<String> {
        let messages = self.refusal.iter().flat_map(|refusal| &refusal.messages);
        let of_field = messages.filter_map(|(key, problems)| Some((entry(key.strip_prefix(name)?)?, problems)));
        of_field.flat_map(|(entry, problems)| problems.iter().map(move |problem| format!("{entry}{problem}"))).collect()
    }

    /// A hidden field with the key under which the form takes effect once. A corrected form is another request, which takes
    /// another key.
    pub fn key(&self) -> Markup {
        let is_undecided = self.refusal.is_some_and(Refusal::is_undecided);
        let key = if is_undecided { self.form.key() } else { new_key() };
        html! { input type="hidden" name=(KEY) value=(key); }
    }

    /// A field for one line of text. `kind` is the input's type.
    pub fn input(&self, name: &str, label: &str, kind: &str, hint: &str) -> Markup {
        let value = if kind == "password" { "" } else { self.form.value(name) };
        self.labelled(name, label, hint, &|described, is_wrong| {
            html! {
                input #(name) name=(name) type=(kind) value=(value) autocomplete=(autocomplete(name))
                    aria-describedby=[described] aria-invalid=[is_wrong.then_some("true")];
            }
        })
    }

    /// A field for a new password, which a browser does not fill in.
    pub fn new_password(&self, name: &str, label: &str, hint: &str) -> Markup {
        self.labelled(name, label, hint, &|described, is_wrong| {
            html! {
                input #(name) name=(name) type="password" autocomplete="new-password"
                    aria-describedby=[described] aria-invalid=[is_wrong.then_some("true")];
            }
        })
    }

    /// A field for several lines of text.
    pub fn area(&self, name: &str, label: &str, hint: &str) -> Markup {
        self.labelled(name, label, hint, &|described, is_wrong| {
            html! {
                textarea #(name) name=(name) rows="6" aria-describedby=[described] aria-invalid=[is_wrong.then_some("true")] {
                    (self.form.value(name))
                }
            }
        })
    }

    /// A choice of a file. `accept` lists the kinds of file that the browser offers.
    pub fn file(&self, name: &str, label: &str, accept: &str, hint: &str) -> Markup {
        self.labelled(name, label, hint, &|described, is_wrong| {
            html! {
                input #(name) name=(name) type="file" accept=(accept)
                    aria-describedby=[described] aria-invalid=[is_wrong.then_some("true")];
            }
        })
    }

    /// A choice between options: value and text.
    pub fn select<V: AsRef<str>, T: AsRef<str>>(&self, name: &str, label: &str, options: &[(V, T)], hint: &str) -> Markup {
        self.labelled(name, label, hint, &|described, is_wrong| {
            html! {
                select #(name) name=(name) aria-describedby=[described] aria-invalid=[is_wrong.then_some("true")] {
                    @for (value, text) in options {
                        option value=(value.as_ref()) selected[value.as_ref() == self.form.value(name)] { (text.as_ref()) }
                    }
                }
            }
        })
    }

    /// Tick boxes for a set of values: each value with its meaning. `label` begins the text of a problem.
    pub fn ticks(&self, name: &str, label: &str, hint: &str, options: &[(&str, &str)]) -> Markup {
        let problems = self.problems(name);
        let is_chosen = |value: &str| self.form.all(name).any(|chosen| chosen == value);
        let described = (!problems.is_empty()).then(|| format!("{name}-problem"));
        html! {
            fieldset .wrong[!problems.is_empty()] aria-describedby=[described] {
                legend { (label) }
                @if !hint.is_empty() { p.hint { (hint) } }
                @for (value, meaning) in options {
                    label.tick {
                        input type="checkbox" name=(name) value=(value) checked[is_chosen(value)];
                        span { (meaning) " " code { (value) } }
                    }
                }
                (problem(name, label, &problems))
            }
        }
    }

    fn labelled(&self, name: &str, label: &str, hint: &str, control: &dyn Fn(Option<String>, bool) -> Markup) -> Markup {
        let problems = self.problems(name);
        let described: Vec<String> = [(!hint.is_empty(), "hint"), (!problems.is_empty(), "problem")]
            .into_iter()
            .filter(|(is_there, _)| *is_there)
            .map(|(_, part)| format!("{name}-{part}"))
            .collect();
        let described = if described.is_empty() { None } else { Some(described.join(" ")) };
        html! {
            div.field.wrong[!problems.is_empty()] {
                label for=(name) { (label) }
                (control(described, !problems.is_empty()))
                @if !hint.is_empty() { p.hint #{ (name) "-hint" } { (hint) } }
                (problem(name, label, &problems))
            }
        }
    }
}

/// Names an entry of a list by the rest of its key: the second header's name is `[1].name`, "number 2: name ". Returns an empty
/// text for the field itself, and `None` for another field.
fn entry(rest: &str) -> Option<String> {
    if rest.is_empty() {
        return Some(String::new());
    }
    let (index, part) = rest.strip_prefix('[')?.split_once(']')?;
    let number = index.parse::<usize>().ok()? + 1;
    match part.strip_prefix('.') {
        Some(part) => Some(format!("number {number}: {part} ")),
        None => Some(format!("number {number} ")),
    }
}

fn problem(name: &str, label: &str, problems: &[String]) -> Markup {
    html! {
        @if !problems.is_empty() {
            p.problem #{ (name) "-problem" } { @for problem in problems { (label) " " (problem) ". " } }
        }
    }
}

/// Returns the kind of value that a browser may fill in.
fn autocomplete(name: &str) -> &'static str {
    match name {
        "email" => "username",
        "password" | "current_password" => "current-password",
        "new_password" => "new-password",
        "otp" => "one-time-code",
        _ => "off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_of_entries_stand_at_the_field_of_the_list() {
        let form = Form::default();
        let mut refusal = Refusal::of_field("networks[1]", "must be a network");
        refusal.messages.insert("headers[0].name".to_owned(), vec!["is reserved".to_owned()]);
        refusal.messages.insert("network".to_owned(), vec!["is another field".to_owned()]);
        let fields = Filled { form: &form, refusal: Some(&refusal) };
        let networks = fields.area("networks", "Networks", "").0;
        assert!(
            networks.contains(">Networks number 2 must be a network. <") && networks.contains("networks-problem"),
            "{networks}"
        );
        assert!(!networks.contains("another field"), "{networks}");
        assert_eq!(fields.problems("headers"), ["number 1: name is reserved"]);
        let ticks = fields.ticks("networks", "Networks", "", &[("a", "The first")]).0;
        assert!(ticks.contains("id=\"networks-problem\"") && ticks.contains("aria-describedby=\"networks-problem\""), "{ticks}");
    }
}
