// The description of verbs and flags, on its own: verbs of the tests, not the command's.
#include "command_line.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::tools {
namespace {

struct Answer {
  int code = -1;
  std::string out, err;
};

Answer run_line(const CommandLine& line, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "test");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Answer answer;
  answer.code = run(line, static_cast<int>(arguments.size()), arguments.data());
  std::fflush(stdout);
  answer.out = testing::internal::GetCapturedStdout();
  answer.err = testing::internal::GetCapturedStderr();
  return answer;
}

// One flag of every type and rule, so that each test uses one.
struct Values {
  bool on = false;
  int count = 1;
  std::int64_t whole = 2;
  std::uint64_t seed = 3;
  double real = 4.0;
  std::string text = "five";
  std::optional<std::int64_t> maybe_whole;
  std::optional<double> maybe_real;
  std::optional<std::string> maybe_text;
  std::vector<std::int64_t> numbers = {6};
  std::vector<std::string> words = {"seven"};
  std::string model, kind, position, offset, curves, json, out, say, twice;
  std::vector<std::string> engines;
  std::optional<std::uint64_t> maybe_seed;
  std::int64_t threads = 0, rounds = 1, largest = 256;
};

class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() {
    line_.name = "test";
    line_.summary = "test: a program";
    line_.version = "test 1.2";
    line_.footer = "All else is elsewhere.";
    Values& values = *values_;
    Verb& verb = line_.verb("set", "sets every kind of value");
    verb.flag("--on", &values.on, "a switch");
    verb.flag("--count", &values.count, "an int");
    verb.flag("--whole", &values.whole, "an int64");
    verb.flag("--seed", &values.seed, "a uint64");
    verb.flag("--real", &values.real, "a double");
    verb.flag("-t,--text", &values.text, "a string");
    verb.flag("--maybe-whole", &values.maybe_whole, "an optional int64");
    verb.flag("--maybe-seed", &values.maybe_seed, "an optional uint64");
    verb.flag("--maybe-real", &values.maybe_real, "an optional double");
    verb.flag("--maybe-text", &values.maybe_text, "an optional string");
    verb.flag("--numbers", &values.numbers, "int64s").separated_by(',');
    verb.flag("--words", &values.words, "strings").separated_by(',');
    verb.footer = "Example  test set --on";
    verb.action = [this] {
      ++actions_;
      return exit_code::done;
    };
    Verb& rules = line_.verb("obey", "has every kind of rule");
    rules.argument("model", &values.model, "an argument").value("MODEL").required();
    rules.flag("--kind", &values.kind, "a choice").one_of({"softmax", "linear"});
    rules.flag("--offset", &values.offset, "not with --position").excludes("--position");
    rules.flag("--position", &values.position, "not with --offset");
    rules.flag("--threads", &values.threads, "bounded below").at_least(0);
    rules.flag("--rounds", &values.rounds, "bounded on both sides").within(1, 100).show_default();
    rules.flag("--largest", &values.largest, "useless alone").needs("--curves");
    rules.flag("--curves", &values.curves, "needed");
    rules.flag("--json", &values.json, "a value that may be missing").value("FILE").bare("-");
    rules.flag("--engines", &values.engines, "a list of choices")
        .separated_by(',')
        .one_of({"hf", "vllm"});
    rules.flag("--out", &values.out, "a folder").folder();
    rules.flag("--say", &values.say, "no file").free_text();
    rules.flag("--twice", &values.twice, "read by a function").read_by([](const std::string& text) {
      if (text == "bad") throw Error(ErrorCode::io, "cannot read bad");
      return text + text;
    });
    rules.action = [this] {
      ++actions_;
      return exit_code::difference;
    };
  }

  Answer run_with(std::vector<const char*> arguments) { return run_line(line_, arguments); }

  // The error line of a refusal; whatever else happened fails the test.
  std::string refusal(std::vector<const char*> arguments) {
    const int before = actions_;
    const Answer answer = run_with(std::move(arguments));
    EXPECT_EQ(answer.code, exit_code::wrong) << answer.err;
    EXPECT_EQ(answer.out, "");
    EXPECT_EQ(actions_, before) << "a refused request must do nothing";
    EXPECT_EQ(answer.err.find('\n') + 1, answer.err.size()) << "one line: " << answer.err;
    return answer.err.substr(0, answer.err.find('\n'));
  }

  CommandLine line_;
  std::unique_ptr<Values> values_ = std::make_unique<Values>();
  int actions_ = 0;
};

TEST_F(CommandLineTest, WithoutFlagsEveryTargetKeepsItsValue) {
  const Answer answer = run_with({"set"});
  EXPECT_EQ(answer.code, exit_code::done) << answer.err;
  EXPECT_EQ(actions_, 1);
  EXPECT_FALSE(values_->on);
  EXPECT_EQ(values_->count, 1);
  EXPECT_EQ(values_->text, "five");
  EXPECT_FALSE(values_->maybe_whole || values_->maybe_real || values_->maybe_text);
  EXPECT_EQ(values_->numbers, std::vector<std::int64_t>{6});
  EXPECT_EQ(values_->words, std::vector<std::string>{"seven"});
}

TEST_F(CommandLineTest, EveryTypeIsRead) {
  const Answer answer = run_with({"set",
                                  "--on",
                                  "--count",
                                  "-7",
                                  "--whole",
                                  "9007199254740993",
                                  "--seed",
                                  "18446744073709551615",
                                  "--real",
                                  "1e-3",
                                  "-t",
                                  "a b",
                                  "--maybe-whole=-4",
                                  "--maybe-real",
                                  "0.5",
                                  "--maybe-text",
                                  "",
                                  "--numbers",
                                  "1,2",
                                  "--words",
                                  "x,y,z"});
  EXPECT_EQ(answer.code, exit_code::done) << answer.err;
  EXPECT_TRUE(values_->on);
  EXPECT_EQ(values_->count, -7);
  EXPECT_EQ(values_->whole, 9007199254740993);
  EXPECT_EQ(values_->seed, 18446744073709551615U);
  EXPECT_EQ(values_->real, 1e-3);
  EXPECT_EQ(values_->text, "a b");
  EXPECT_EQ(values_->maybe_whole, -4);
  EXPECT_EQ(values_->maybe_real, 0.5);
  EXPECT_EQ(values_->maybe_text, "");
  EXPECT_EQ(values_->numbers, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(values_->words, (std::vector<std::string>{"x", "y", "z"}));
}

TEST_F(CommandLineTest, AListTakesItsFlagAgain) {
  EXPECT_EQ(run_with({"set", "--numbers", "1,2", "--numbers", "3"}).code, exit_code::done);
  EXPECT_EQ(values_->numbers, (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_F(CommandLineTest, ASingleValueRefusesItsFlagAgain) {
  EXPECT_NE(refusal({"set", "--count", "1", "--count", "2"}).find("--count"), std::string::npos);
}

TEST_F(CommandLineTest, ABadNumberIsShown) {
  for (const char* flag :
       {"--count", "--whole", "--seed", "--real", "--maybe-whole", "--maybe-real", "--numbers"}) {
    const std::string line = refusal({"set", flag, "many"});
    EXPECT_EQ(line.rfind("test set: ", 0), 0U) << line;
    EXPECT_NE(line.find(flag), std::string::npos) << line;
    EXPECT_NE(line.find("many"), std::string::npos) << line;
    EXPECT_NE(line.find("; see test set --help"), std::string::npos) << line;
  }
  EXPECT_NE(refusal({"set", "--count", "1.5"}).find("1.5"), std::string::npos);
}

TEST_F(CommandLineTest, AMissingValueIsRefused) {
  EXPECT_NE(refusal({"set", "--text"}).find("--text"), std::string::npos);
}

TEST_F(CommandLineTest, AnUnknownFlagIsNamed) {
  EXPECT_NE(refusal({"set", "--nonsense"}).find("--nonsense"), std::string::npos);
  EXPECT_NE(refusal({"set", "-x"}).find("-x"), std::string::npos);
  EXPECT_NE(refusal({"set", "extra"}).find("extra"), std::string::npos);
}

TEST_F(CommandLineTest, TheClosestNameIsSuggested) {
  EXPECT_NE(refusal({"set", "--coutn", "1"}).find("\"--count\""), std::string::npos);
  // A misspelt flag is reported, not the argument that is missing as well.
  EXPECT_NE(refusal({"obey", "--treads", "1"}).find("\"--threads\""), std::string::npos);
  EXPECT_NE(refusal({"obey", "m", "--kind", "softmx"}).find("\"softmax\""), std::string::npos);
  EXPECT_NE(refusal({"obay"}).find("\"obey\""), std::string::npos);
}

TEST_F(CommandLineTest, AValueMayLookLikeAFlag) {
  EXPECT_EQ(run_with({"set", "--text", "--coutn"}).code, exit_code::done);
  EXPECT_EQ(values_->text, "--coutn");
  EXPECT_EQ(run_with({"set", "-t", "-5", "--whole=-3"}).code, exit_code::done);
  EXPECT_EQ(values_->text, "-5");
  EXPECT_EQ(values_->whole, -3);
}

TEST_F(CommandLineTest, AnArgumentIsReadAndRequired) {
  EXPECT_EQ(run_with({"obey", "here"}).code, exit_code::difference);
  EXPECT_EQ(values_->model, "here");
  EXPECT_NE(refusal({"obey"}).find("model"), std::string::npos);
}

TEST_F(CommandLineTest, AChoiceOutsideTheListIsRefused) {
  EXPECT_EQ(run_with({"obey", "m", "--kind", "linear"}).code, exit_code::difference);
  EXPECT_EQ(values_->kind, "linear");
  const std::string line = refusal({"obey", "m", "--kind", "cubic"});
  EXPECT_NE(line.find("cubic"), std::string::npos) << line;
  for (const char* choice : {"softmax", "linear"}) {
    EXPECT_NE(line.find(choice), std::string::npos) << line;
  }
}

TEST_F(CommandLineTest, ExclusionHoldsBothWays) {
  // The excluding flag is described before the excluded one: order must not matter.
  for (const char* first : {"--offset", "--position"}) {
    const std::string other = std::string(first) == "--offset" ? "--position" : "--offset";
    const std::string line = refusal({"obey", "m", first, "1", other.c_str(), "2"});
    EXPECT_NE(line.find("--offset"), std::string::npos) << line;
    EXPECT_NE(line.find("--position"), std::string::npos) << line;
  }
  EXPECT_EQ(run_with({"obey", "m", "--offset", "1"}).code, exit_code::difference);
  EXPECT_EQ(run_with({"obey", "m", "--position", "1"}).code, exit_code::difference);
}

TEST_F(CommandLineTest, ANeededFlagMustBeThere) {
  const std::string line = refusal({"obey", "m", "--largest", "512"});
  EXPECT_NE(line.find("--largest"), std::string::npos) << line;
  EXPECT_NE(line.find("--curves"), std::string::npos) << line;
  EXPECT_EQ(run_with({"obey", "m", "--largest", "512", "--curves", "d"}).code,
            exit_code::difference);
}

TEST_F(CommandLineTest, BoundsAreNamedWithTheValue) {
  const auto shows = [&](const char* flag, const char* value, std::vector<std::string> numbers) {
    const std::string line = refusal({"obey", "m", flag, value});
    numbers.insert(numbers.end(), {flag, value});
    for (const std::string& number : numbers) {
      EXPECT_NE(line.find(number), std::string::npos) << "no " << number << " in: " << line;
    }
  };
  shows("--threads", "-1", {"0"});
  shows("--threads", "x", {"0"});
  for (const char* value : {"0", "101", "99999999999999999999", "x"})
    shows("--rounds", value, {"1", "100"});
  EXPECT_EQ(run_with({"obey", "m", "--rounds", "1"}).code, exit_code::difference);
  EXPECT_EQ(run_with({"obey", "m", "--rounds", "100", "--threads", "0"}).code,
            exit_code::difference);
  EXPECT_EQ(values_->rounds, 100);
}

TEST_F(CommandLineTest, NumbersThatDoNotFitTheirTypeAreRefusedWithTheRange) {
  const struct {
    const char *flag, *value, *limit;
  } cases[] = {{"--count", "2147483648", "2147483647"},
               {"--count", "-2147483649", "-2147483648"},
               {"--whole", "9223372036854775808", "9223372036854775807"},
               {"--whole", "99999999999999999999", "9223372036854775807"},
               {"--maybe-whole", "-9223372036854775809", "-9223372036854775808"},
               {"--numbers", "1,99999999999999999999", "9223372036854775807"},
               {"--seed", "18446744073709551616", "18446744073709551615"},
               {"--real", "1e999", "1e308"}};
  for (const auto& [flag, value, limit] : cases) {
    const std::string line = refusal({"set", flag, value});
    const std::string shown = std::string(value).substr(std::string(value).find(',') + 1);
    for (const std::string& text : {std::string(flag), shown, std::string(limit)})
      EXPECT_NE(line.find(text), std::string::npos) << "no " << text << " in: " << line;
  }
  EXPECT_NE(refusal({"obey", "m", "--threads", "9223372036854775808"}).find("9223372036854775807"),
            std::string::npos);
  EXPECT_NE(refusal({"set", "--seed", "-1"}).find("-1"), std::string::npos);
}

TEST_F(CommandLineTest, NumbersAreDecimal) {
  EXPECT_EQ(run_with({"set", "--whole", "010", "--count", "+7"}).code, exit_code::done);
  EXPECT_EQ(values_->whole, 10);
  EXPECT_EQ(values_->count, 7);
  EXPECT_NE(refusal({"set", "--whole", "0x10"}).find("0x10"), std::string::npos);
}

TEST_F(CommandLineTest, HelpNamesEveryVerbAndEveryFlag) {
  const Answer all = run_with({"--help"});
  EXPECT_EQ(all.code, exit_code::done);
  EXPECT_EQ(all.err, "");
  for (const std::string& text : {line_.summary, line_.footer}) {
    EXPECT_NE(all.out.find(text), std::string::npos) << text;
  }
  for (const Verb& verb : line_.verbs) {
    EXPECT_NE(all.out.find(verb.name), std::string::npos) << verb.name;
    EXPECT_NE(all.out.find(verb.summary), std::string::npos) << verb.summary;
    const Answer page = run_with({verb.name.c_str(), "--help"});
    EXPECT_EQ(page.code, exit_code::done);
    EXPECT_NE(page.out.find(verb.footer), std::string::npos);
    for (const Flag& flag : verb.flags) {
      EXPECT_NE(page.out.find(flag.names), std::string::npos) << flag.names;
      EXPECT_NE(page.out.find(flag.help), std::string::npos) << flag.help;
      for (const std::string& choice : flag.choices) {
        EXPECT_NE(page.out.find(choice), std::string::npos) << choice;
      }
    }
  }
  EXPECT_EQ(actions_, 0);
}

TEST_F(CommandLineTest, HelpShowsNamesOfValuesBoundsAndDefaults) {
  const std::string page = run_with({"obey", "--help"}).out;
  for (const char* text : {"MODEL", "REQUIRED", "INT >= 0", "INT in [1 - 100]", "=1",
                           "Excludes: --position", "Excludes: --offset", "Needs: --curves"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text << "\n" << page;
  }
}

TEST_F(CommandLineTest, VersionIsPrinted) {
  for (const char* flag : {"--version", "-V"}) {
    const Answer answer = run_with({flag});
    EXPECT_EQ(answer.code, exit_code::done);
    EXPECT_EQ(answer.out, "test 1.2\n");
  }
}

TEST_F(CommandLineTest, WithoutArgumentsHelpIsPrinted) {
  const Answer answer = run_with({});
  EXPECT_EQ(answer.code, exit_code::done);
  EXPECT_EQ(answer.out, run_with({"--help"}).out);
  EXPECT_EQ(answer.out, help_text(line_));
  EXPECT_EQ(run_with({"set", "--help"}).out, help_text(line_, line_.verb_named("set")));
}

TEST_F(CommandLineTest, WholeNumbersMayHaveASuffix) {
  const Answer answer = run_with({"set", "--whole", "128k", "--count", "-1K", "--numbers", "4k,1M",
                                  "--maybe-whole", "2G", "--maybe-seed", "18446744073709551615"});
  EXPECT_EQ(answer.code, exit_code::done) << answer.err;
  EXPECT_EQ(values_->whole, 131072);
  EXPECT_EQ(values_->count, -1024);
  EXPECT_EQ(values_->numbers, (std::vector<std::int64_t>{4096, 1048576}));
  EXPECT_EQ(values_->maybe_whole, std::int64_t{2} << 30);
  EXPECT_EQ(values_->maybe_seed, 18446744073709551615U);
  for (const char* bad : {"k", "1kk", "1m", "1.5k", "1 k", "k1", "-k", ""})
    EXPECT_NE(refusal({"set", "--whole", bad}).find(bad), std::string::npos) << bad;
  // What does not fit the type or the bounds.
  EXPECT_NE(refusal({"set", "--count", "2G"}).find("2147483647"), std::string::npos);
  EXPECT_NE(refusal({"set", "--whole", "9007199254740993k"}).find("9007199254740993k"),
            std::string::npos);
  EXPECT_NE(refusal({"obey", "m", "--rounds", "1k"}).find("100"), std::string::npos);
  EXPECT_NE(refusal({"set", "--real", "128k"}).find("128k"), std::string::npos);
}

TEST_F(CommandLineTest, AValueMayBeMissing) {
  const auto json_of = [&](std::vector<const char*> words) {
    values_->json.clear();
    values_->model.clear();
    words.insert(words.begin(), "obey");
    const Answer answer = run_with(words);
    EXPECT_EQ(answer.code, exit_code::difference) << answer.err;
    EXPECT_EQ(values_->model, "m");
    return values_->json;
  };
  EXPECT_EQ(json_of({"m"}), "");
  EXPECT_EQ(json_of({"m", "--json"}), "-");
  EXPECT_EQ(json_of({"m", "--json", "-"}), "-");
  EXPECT_EQ(json_of({"m", "--json", "F"}), "F");
  EXPECT_EQ(json_of({"m", "--json=F"}), "F");
  EXPECT_EQ(json_of({"--json", "F", "m"}), "F");
  // The word is the argument that is required.
  EXPECT_EQ(json_of({"--json", "m"}), "-");
  EXPECT_EQ(json_of({"--json", "m", "--threads", "1"}), "-");
  EXPECT_EQ(json_of({"m", "--json", "--threads", "1"}), "-");
  EXPECT_EQ(json_of({"--json", "F", "--threads", "1", "m"}), "F");
}

TEST_F(CommandLineTest, TextIsReadBeforeTheAction) {
  EXPECT_EQ(run_with({"obey", "m", "--twice", "ab"}).code, exit_code::difference);
  EXPECT_EQ(values_->twice, "abab");
  EXPECT_EQ(refusal({"obey", "m", "--twice", "bad"}), "test obey: cannot read bad");
}

TEST_F(CommandLineTest, EachElementOfAListIsAChoice) {
  EXPECT_EQ(run_with({"obey", "m", "--engines", "vllm,hf"}).code, exit_code::difference);
  EXPECT_EQ(values_->engines, (std::vector<std::string>{"vllm", "hf"}));
  EXPECT_NE(refusal({"obey", "m", "--engines", "hf,vlm"}).find("\"vllm\""), std::string::npos);
}

TEST_F(CommandLineTest, AVerbMustBeGivenAndKnown) {
  for (const char* nothing : {"", "--"}) {
    const std::string line = refusal({nothing});
    for (const char* text : {"test: ", "set", "obey", "; see test --help"})
      EXPECT_NE(line.find(text), std::string::npos) << line;
  }
  EXPECT_NE(refusal({"--hlep"}).find("\"--help\""), std::string::npos);
  EXPECT_NE(refusal({"sets"}).find("sets"), std::string::npos);
  const std::string line = refusal({"--nonsense"});
  EXPECT_NE(line.find("--nonsense"), std::string::npos) << line;
  EXPECT_NE(line.find("; see test --help"), std::string::npos) << line;
}

TEST_F(CommandLineTest, WhatAnActionThrowsIsOneLine) {
  Verb& verb = line_.verb("fail", "throws");
  std::string text;
  verb.action = [&text]() -> int { throw Error(ErrorCode::io, text); };
  text = "cannot open x";
  EXPECT_EQ(refusal({"fail"}), "test fail: cannot open x");
  text = "fail: said\ntwice\r";  // the verb's own name in front is dropped
  EXPECT_EQ(refusal({"fail"}), R"(test fail: said\ntwice\x0d)");
  verb.action = []() -> int { throw std::bad_alloc(); };
  EXPECT_NE(refusal({"fail"}).find("memory"), std::string::npos);
}

TEST_F(CommandLineTest, ADescriptionThatContradictsItselfIsOurMistake) {
  std::string value;
  const auto expect_internal = [&](const CommandLine& line) {
    const char* arguments[] = {"test", "odd"};
    try {
      static_cast<void>(run(line, 2, arguments));
      ADD_FAILURE() << "must throw";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::internal) << error.what();
    }
  };
  CommandLine absent;
  absent.verb("odd", "").flag("--one", &value, "").excludes("--two");
  expect_internal(absent);
  CommandLine twice;
  Verb& verb = twice.verb("odd", "");
  verb.flag("--one", &value, "");
  verb.flag("--one", &value, "");
  expect_internal(twice);
}

TEST_F(CommandLineTest, TheDescriptionIsPlainData) {
  const Verb& rules = line_.verbs.at(1);
  ASSERT_EQ(rules.flags.size(), 13U);
  EXPECT_TRUE(rules.flags[0].is_argument());
  EXPECT_TRUE(rules.flags[0].is_required);
  EXPECT_EQ(rules.flags[0].value_name, "MODEL");
  EXPECT_FALSE(rules.flags[1].is_argument());
  EXPECT_EQ(rules.flags[1].choices, (std::vector<std::string>{"softmax", "linear"}));
  EXPECT_EQ(rules.flags[2].excluded, std::vector<std::string>{"--position"});
  EXPECT_EQ(rules.flags[5].bounds->most, 100);
  EXPECT_EQ(rules.flags[6].needed, std::vector<std::string>{"--curves"});
  EXPECT_TRUE(std::holds_alternative<std::string*>(rules.flags[7].target));
}

}  // namespace
}  // namespace phasor::tools
