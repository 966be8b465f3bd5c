#include "man_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "text_lines.hpp"

namespace phasor::tools {
namespace {

// Text for roff: characters that it would read or print in another form are escaped.
std::string roff(std::string_view text) {
  std::string result;
  for (const char character : text) {
    switch (character) {
      case '\\':
        result += "\\e";
        break;
      case '-':
        result += "\\-";
        break;
      case '\'':
        result += "\\(aq";
        break;
      case '`':
        result += "\\(ga";
        break;
      case '^':
        result += "\\(ha";
        break;
      case '~':
        result += "\\(ti";
        break;
      case '"':
        result += "\\(dq";
        break;
      case '.':
        // A line that begins with a dot is a request.
        result += result.empty() || result.back() == '\n' ? "\\&." : ".";
        break;
      default:
        result += character;
    }
  }
  return result;
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& character : result)
    character = static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
  return result;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::string title(const CommandLine& line, std::string_view page) {
  return fmt::format(".TH {} 1 \"\" \"{}\" \"{} manual\"\n", roff(upper(page)), roff(line.version),
                     roff(line.name));
}

std::string heading(std::string_view text) { return fmt::format(".SH {}\n", roff(upper(text))); }

// A footer has paragraphs, and sections whose name stands in the first columns:
//
//   Shape    F.npy is float64 [pairs]
//            and more of it
constexpr std::size_t kColumn = 9;
constexpr std::string_view kIndent = "         ";

// The name of the section that begins on line `at`; empty: none does.
std::string_view section_at(const std::vector<std::string_view>& lines, std::size_t at) {
  const std::string_view text = lines[at];
  if (text.size() <= kColumn || std::isupper(static_cast<unsigned char>(text[0])) == 0) return {};
  const std::size_t end = text.find(' ');
  if (end >= kColumn || text.find_first_not_of(' ', end) != kColumn) return {};
  const bool wide = end + 1 < kColumn;
  const bool continues = at + 1 < lines.size() && lines[at + 1].starts_with(kIndent);
  return wide || continues ? text.substr(0, end) : std::string_view();
}

std::string verbatim(const std::vector<std::string_view>& lines) {
  std::string text = ".nf\n";
  for (const std::string_view one : lines) text += roff(one) + "\n";
  return text + ".fi\n";
}

std::string footer_page(std::string_view footer) {
  std::string paragraphs, sections;
  const std::vector<std::string_view> lines = lines_of(footer);
  for (std::size_t at = 0; at < lines.size();) {
    if (lines[at].empty()) {
      ++at;
      continue;
    }
    std::vector<std::string_view> body;
    if (const std::string_view name = section_at(lines, at); !name.empty()) {
      body.push_back(lines[at++].substr(kColumn));
      for (; at < lines.size() && lines[at].starts_with(kIndent); ++at)
        body.push_back(lines[at].substr(kColumn));
      sections += heading(name) + verbatim(body);
      continue;
    }
    for (; at < lines.size() && !lines[at].empty() && section_at(lines, at).empty(); ++at)
      body.push_back(lines[at]);
    // Indented lines, or columns.
    const bool laid_out = std::any_of(body.begin(), body.end(), [](std::string_view one) {
      return one.starts_with(' ') || one.find("  ") != std::string_view::npos;
    });
    paragraphs += ".PP\n";
    if (laid_out) {
      paragraphs += verbatim(body);
    } else {
      for (const std::string_view one : body) paragraphs += roff(one) + "\n";
    }
  }
  return paragraphs.empty() ? sections : heading("description") + paragraphs + sections;
}

// Flags that cannot be combined with this one: those it names, and those that name it.
std::vector<std::string> excluded_by(const Verb& verb, const Flag& flag) {
  std::vector<std::string> excluded = flag.excluded;
  const std::vector<std::string_view> own = flag.split_names();
  for (const Flag& other : verb.flags) {
    const bool names_it =
        std::any_of(other.excluded.begin(), other.excluded.end(), [&](const std::string& name) {
          return std::find(own.begin(), own.end(), name) != own.end();
        });
    const std::string name(other.split_names().back());
    if (names_it && std::find(excluded.begin(), excluded.end(), name) == excluded.end())
      excluded.push_back(name);
  }
  return excluded;
}

std::string flag_entry(const Verb& verb, const Flag& flag) {
  std::string text = ".TP\n";
  if (flag.is_argument()) {
    text +=
        fmt::format(".I {}\n", roff(flag.value_name.empty() ? upper(flag.names) : flag.value_name));
  } else {
    std::string names;
    for (const std::string_view name : flag.split_names()) {
      if (!names.empty()) names += ", ";
      names += fmt::format("\\fB{}\\fR", roff(name));
    }
    if (flag.takes_value()) {
      const std::string value = fmt::format("\\fI{}\\fR", roff(flag.value_text()));
      names += flag.bare_value ? fmt::format(" [{}]", value) : " " + value;
    }
    text += names + "\n";
  }
  text += roff(flag.help) + "\n";
  const auto names_of_others = [](const std::vector<std::string>& others) {
    std::string joined;
    for (const std::string& other : others)
      joined += fmt::format("{}\\fB{}\\fR", joined.empty() ? "" : ", ", roff(other));
    return joined;
  };
  if (flag.is_required) text += ".br\nRequired.\n";
  if (const std::vector<std::string> excluded = excluded_by(verb, flag); !excluded.empty())
    text += fmt::format(".br\nCannot be combined with {}.\n", names_of_others(excluded));
  if (!flag.needed.empty()) text += fmt::format(".br\nNeeds {}.\n", names_of_others(flag.needed));
  return text;
}

constexpr std::string_view kExitStatus =
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\nDone.\n"
    ".TP\n.B 1\nThe check found a difference.\n"
    ".TP\n.B 2\nThe request or the input is wrong; one line on stderr says how.\n";

}  // namespace

std::string man_page(const CommandLine& line) {
  std::string text = title(line, line.name);
  std::string purpose = line.summary.substr(line.summary.find(": ") + 2);
  if (purpose.ends_with('.')) purpose.pop_back();
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(line.name), roff(purpose));
  text += fmt::format(".SH SYNOPSIS\n.B {0}\n.I VERB\n[\\fIflags\\fR]\n.br\n.B {0} help\n.I VERB\n",
                      roff(line.name));
  text += heading("description") + ".PP\n";
  for (const std::string_view one : lines_of(line.footer)) text += roff(one) + "\n.br\n";
  text += heading("verbs");
  for (const Verb& verb : line.verbs)
    text += fmt::format(".TP\n.B {}\n{}\n", roff(verb.name), roff(verb.summary));
  for (const ManSection& section : line.sections) {
    text += heading(section.title);
    for (const auto& [term, meaning] : section.entries)
      text += fmt::format(".TP\n.B {}\n{}\n", roff(term), roff(meaning));
  }
  text += kExitStatus;
  text += ".SH SEE ALSO\n";
  for (const Verb& verb : line.verbs)
    text += fmt::format(".BR {}\\-{} (1){}\n", roff(line.name), roff(verb.name),
                        &verb == &line.verbs.back() ? "" : ",");
  return text;
}

std::string man_page(const CommandLine& line, const Verb& verb) {
  const std::string name = line.name + "-" + verb.name;
  std::string text = title(line, name);
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(verb.summary));
  text += fmt::format(".SH SYNOPSIS\n.B {} {}\n", roff(line.name), roff(verb.name));
  bool others = false;
  for (const Flag& flag : verb.flags) {
    const std::string value =
        flag.is_argument() && flag.value_name.empty() ? upper(flag.names) : flag.value_text();
    if (flag.is_argument()) {
      text += fmt::format("{}\\fI{}\\fR{}\n", flag.is_required ? "" : "[", roff(value),
                          flag.is_required ? "" : "]");
    } else if (flag.is_required) {
      text += fmt::format("\\fB{}\\fR \\fI{}\\fR\n", roff(flag.split_names().back()), roff(value));
    } else {
      others = true;
    }
  }
  if (others) text += "[\\fIflags\\fR]\n";
  std::string arguments, flags;
  for (const Flag& flag : verb.flags)
    (flag.is_argument() ? arguments : flags) += flag_entry(verb, flag);
  flags += ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprint help and exit\n";
  const std::string footer = footer_page(verb.footer);
  const std::size_t sections = footer.find(".SH", footer.starts_with(".SH DESCRIPTION") ? 1 : 0);
  text += footer.substr(0, sections);
  if (!arguments.empty()) text += ".SH ARGUMENTS\n" + arguments;
  text += ".SH OPTIONS\n" + flags;
  if (sections != std::string::npos) text += footer.substr(sections);
  if (footer.find(".SH EXIT\n") == std::string::npos) text += kExitStatus;
  return text + fmt::format(".SH SEE ALSO\n.BR {} (1)\n", roff(line.name));
}

}  // namespace phasor::tools
