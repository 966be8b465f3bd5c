#include "io/arrays/pickle.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "phasor/core/internal/standard.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::io {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kOrderedDict = "collections.OrderedDict";
// Longest "module.name" that is looked at.
constexpr std::size_t kLongestGlobal = 200;

// The opcodes of Python's pickle module that plain values need.
enum class Op : unsigned char {
  mark = '(',
  stop = '.',
  pop = '0',
  pop_mark = '1',
  dup = '2',
  float_8 = 'G',
  int_4 = 'J',
  int_1 = 'K',
  int_2 = 'M',
  none = 'N',
  persistent = 'Q',
  reduce = 'R',
  text_4 = 'X',
  append = 'a',
  build = 'b',
  global = 'c',
  dict = 'd',
  empty_dict = '}',
  appends = 'e',
  get_1 = 'h',
  get_4 = 'j',
  list = 'l',
  empty_list = ']',
  put_1 = 'q',
  put_4 = 'r',
  set_item = 's',
  tuple = 't',
  empty_tuple = ')',
  set_items = 'u',
  bytes_4 = 'B',
  bytes_1 = 'C',
  protocol = 0x80,
  tuple_1 = 0x85,
  tuple_2 = 0x86,
  tuple_3 = 0x87,
  yes = 0x88,
  no = 0x89,
  long_1 = 0x8a,
  text_1 = 0x8c,
  text_8 = 0x8d,
  bytes_8 = 0x8e,
  stack_global = 0x93,
  memoize = 0x94,
  frame = 0x95,
};

// The pickle's stack machine. Failures are thrown.
class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, std::span<const std::string_view> globals)
      : bytes_(bytes), globals_(globals) {}

  [[nodiscard]] Pickle run() {
    if (take<std::uint8_t>() != static_cast<std::uint8_t>(Op::protocol))
      broken("it does not start with a protocol (2 to 5)");
    const int protocol = take<std::uint8_t>();
    if (protocol < 2 || protocol > 5) broken(message("protocol must be 2 to 5, got ", protocol));
    while (step()) {
    }
    if (at_ != bytes_.size())
      broken(message(bytes_.size() - at_, " bytes follow the end of the pickle"));
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void broken(const std::string& text) const {
    throw Error(ErrorCode::io, message("pickle: ", text));
  }

  // False at the end.
  [[nodiscard]] bool step() {
    op_at_ = at_;
    const auto op = static_cast<Op>(take<unsigned char>());
    switch (op) {
      case Op::stop:
        return false;
      case Op::protocol:
        (void)take<std::uint8_t>();
        break;
      case Op::frame:  // bytes that could be read at once
        (void)take<std::uint64_t>();
        break;
      case Op::none:
        push({});
        break;
      case Op::yes:
      case Op::no:
        push({.kind = Kind::boolean, .integer = op == Op::yes ? 1 : 0});
        break;
      case Op::int_1:
        push_integer(take<std::uint8_t>());
        break;
      case Op::int_2:
        push_integer(take<std::uint16_t>());
        break;
      case Op::int_4:
        push_integer(take<std::int32_t>());
        break;
      case Op::long_1:
        push_integer(take_long());
        break;
      case Op::float_8:  // big-endian, unlike all other numbers
        push({.kind = Kind::number,
              .number = core::bit_cast<double>(__builtin_bswap64(take<std::uint64_t>()))});
        break;
      case Op::text_1:
        push({.kind = Kind::text, .text = take_text(take<std::uint8_t>())});
        break;
      case Op::text_4:
        push({.kind = Kind::text, .text = take_text(take<std::uint32_t>())});
        break;
      case Op::text_8:
        push({.kind = Kind::text, .text = take_text(take<std::uint64_t>())});
        break;
      case Op::bytes_1:
        push_bytes(take<std::uint8_t>());
        break;
      case Op::bytes_4:
        push_bytes(take<std::uint32_t>());
        break;
      case Op::bytes_8:
        push_bytes(take<std::uint64_t>());
        break;
      case Op::get_1:
        push_stored(take<std::uint8_t>());
        break;
      case Op::get_4:
        push_stored(take<std::uint32_t>());
        break;
      case Op::put_1:
        memo_[take<std::uint8_t>()] = top();
        break;
      case Op::put_4:
        memo_[take<std::uint32_t>()] = top();
        break;
      case Op::memoize:
        memo_[static_cast<std::uint32_t>(memo_.size())] = top();
        break;
      default:
        step_in_containers(op);
    }
    return true;
  }

  void step_in_containers(Op op) {
    switch (op) {
      case Op::mark:
        marks_.push_back(stack_.size());
        break;
      case Op::pop:
        // As Python: with nothing above the mark, the mark is removed.
        if (!marks_.empty() && marks_.back() == stack_.size()) {
          marks_.pop_back();
        } else {
          (void)pop();
        }
        break;
      case Op::pop_mark:
        (void)pop_to_mark();
        break;
      case Op::dup:
        stack_.push_back(top());
        break;
      case Op::empty_tuple:
        push({.kind = Kind::tuple});
        break;
      case Op::tuple_1:
      case Op::tuple_2:
      case Op::tuple_3:
        push_tuple(static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::tuple_1) + 1);
        break;
      case Op::tuple:
        push({.kind = Kind::tuple, .items = pop_to_mark()});
        break;
      case Op::empty_list:
        push({.kind = Kind::list});
        break;
      case Op::list:
        push({.kind = Kind::list, .items = pop_to_mark()});
        break;
      case Op::append:
        add_to(Kind::list, {pop()});
        break;
      case Op::appends:
        add_to(Kind::list, pop_to_mark());
        break;
      case Op::empty_dict:
        push({.kind = Kind::dict});
        break;
      case Op::dict:
        push({.kind = Kind::dict, .items = pairs(pop_to_mark())});
        break;
      case Op::set_item: {
        const std::uint32_t value = pop(), key = pop();
        add_to(Kind::dict, {key, value});
        break;
      }
      case Op::set_items:
        add_to(Kind::dict, pairs(pop_to_mark()));
        break;
      default:
        step_in_calls(op);
    }
  }

  void step_in_calls(Op op) {
    switch (op) {
      case Op::global: {
        const std::string module = take_line();
        push_global(module, take_line());
        break;
      }
      case Op::stack_global: {
        const std::uint32_t name = pop(), module = pop();
        if (pickle_[name].kind != Kind::text || pickle_[module].kind != Kind::text)
          broken(message("the name of a global at byte ", op_at_, " must be text"));
        push_global(pickle_[module].text, pickle_[name].text);
        break;
      }
      case Op::reduce:
        call();
        break;
      case Op::build:
        // The attributes of an OrderedDict: state_dict() keeps versions of modules there.
        (void)pop();
        if (pickle_[top()].kind != Kind::dict) {
          throw Error(ErrorCode::unsupported,
                      message("pickle: only a dict may have attributes, got byte ", op_at_));
        }
        break;
      case Op::persistent:
        push({.kind = Kind::persistent, .items = {pop()}});
        break;
      default:
        throw Error(ErrorCode::unsupported,
                    message("pickle: opcode ", int{static_cast<unsigned char>(op)}, " at byte ",
                            op_at_, " is not needed by tensors and not supported"));
    }
  }

  void call() {
    const std::uint32_t arguments = pop(), function = pop();
    if (pickle_[function].kind != Kind::global || pickle_[arguments].kind != Kind::tuple)
      broken(message("the call at byte ", op_at_, " needs a function and a tuple"));
    if (pickle_[function].text != kOrderedDict) {
      push({.kind = Kind::call, .text = pickle_[function].text, .items = pickle_[arguments].items});
      return;
    }
    // OrderedDict() or OrderedDict([[key, value], ...])
    PickleValue dict{.kind = Kind::dict};
    const std::vector<std::uint32_t>& given = pickle_[arguments].items;
    if (given.size() > 1) broken(message("OrderedDict takes 1 argument, got ", given.size()));
    if (given.size() == 1) {
      for (const std::uint32_t pair : pickle_[given.front()].items) {
        if (pickle_[pair].items.size() != 2)
          broken(message("OrderedDict needs pairs, got ", pickle_[pair].items.size(), " values"));
        dict.items.insert(dict.items.end(), pickle_[pair].items.begin(), pickle_[pair].items.end());
      }
      bound_items(dict.items.size());
    }
    push(std::move(dict));
  }

  void push_global(const std::string& module, const std::string& name) {
    std::string full = module + "." + name;
    if (full != kOrderedDict &&
        std::find(globals_.begin(), globals_.end(), full) == globals_.end()) {
      throw Error(ErrorCode::unsupported,
                  message("the file holds more than tensors: ", quoted_name(full),
                          " would have to be run, which is refused"));
    }
    push({.kind = Kind::global, .text = std::move(full)});
  }

  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - at_; }

  void expect(std::uint64_t count) const {
    if (count > left()) {
      broken(
          message(kTruncated, "byte ", op_at_, " needs ", count, " bytes, ", left(), " are left"));
    }
  }
  template <class Number>
  [[nodiscard]] Number take() {
    expect(sizeof(Number));
    Number number;
    std::memcpy(&number, bytes_.data() + at_, sizeof(Number));
    at_ += sizeof(Number);
    return number;
  }
  [[nodiscard]] std::string take_text(std::uint64_t size) {
    expect(size);
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_,
                     static_cast<std::size_t>(size));
    at_ += text.size();
    return text;
  }
  [[nodiscard]] std::string take_line() {
    const std::span<const std::byte> rest = bytes_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    const auto size = static_cast<std::size_t>(end - rest.begin());
    if (end == rest.end() || size > kLongestGlobal) {
      broken(message("the name of a global at byte ", op_at_, " must end within ", kLongestGlobal,
                     " bytes"));
    }
    std::string line = take_text(size);
    ++at_;
    return line;
  }
  // Little-endian, two's complement, 0 to 8 bytes.
  [[nodiscard]] std::int64_t take_long() {
    const std::size_t size = take<std::uint8_t>();
    if (size > sizeof(std::int64_t))
      broken(message("an integer must have at most 8 bytes, got ", size));
    expect(size);
    if (size == 0) return 0;
    const bool negative = (std::to_integer<unsigned>(bytes_[at_ + size - 1]) & 0x80U) != 0;
    std::int64_t value = negative ? -1 : 0;
    std::memcpy(&value, bytes_.data() + at_, size);
    at_ += size;
    return value;
  }

  void push_integer(std::int64_t value) { push({.kind = Kind::integer, .integer = value}); }
  void push_bytes(std::uint64_t size) {
    expect(size);
    at_ += static_cast<std::size_t>(size);
    push({.kind = Kind::bytes});
  }
  void push_stored(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end())
      broken(message("byte ", op_at_, " needs value ", index, ", which was not stored"));
    stack_.push_back(found->second);
  }
  void push_tuple(std::size_t size) {
    if (stack_.size() - floor() < size)
      broken(message("a tuple at byte ", op_at_, " needs ", size, " values"));
    PickleValue value{.kind = Kind::tuple};
    value.items.assign(stack_.end() - static_cast<std::ptrdiff_t>(size), stack_.end());
    stack_.resize(stack_.size() - size);
    push(std::move(value));
  }

  void push(PickleValue&& value) {
    if (pickle_.values.size() == kMaxPickleValues)
      broken(message("it must have at most ", kMaxPickleValues, " values"));
    bound_items(value.items.size());
    stack_.push_back(static_cast<std::uint32_t>(pickle_.values.size()));
    pickle_.values.push_back(std::move(value));
  }
  // Calls and OrderedDicts copy items: a short pickle could copy a long tuple many times.
  void bound_items(std::size_t count) {
    items_ += count;
    if (items_ > kMaxPickleBytes) broken("its tuples and lists are too long");
  }

  // What is below the last mark belongs to others.
  [[nodiscard]] std::size_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }
  [[nodiscard]] std::uint32_t top() const {
    if (stack_.size() == floor()) broken(message("no value on the stack at byte ", op_at_));
    return stack_.back();
  }
  [[nodiscard]] std::uint32_t pop() {
    const std::uint32_t index = top();
    stack_.pop_back();
    return index;
  }
  [[nodiscard]] std::vector<std::uint32_t> pop_to_mark() {
    if (marks_.empty()) broken(message("no mark on the stack at byte ", op_at_));
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<std::uint32_t> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  [[nodiscard]] std::vector<std::uint32_t> pairs(std::vector<std::uint32_t> items) const {
    if (items.size() % 2 != 0)
      broken(message("a dict at byte ", op_at_, " needs keys and values, got ", items.size()));
    return items;
  }
  void add_to(Kind kind, const std::vector<std::uint32_t>& items) {
    PickleValue& value = pickle_.values[top()];
    if (value.kind != kind)
      broken(message("byte ", op_at_, " adds to a value that is no list or dict"));
    bound_items(items.size());
    value.items.insert(value.items.end(), items.begin(), items.end());
  }

  std::span<const std::byte> bytes_;
  std::span<const std::string_view> globals_;
  std::size_t at_ = 0, op_at_ = 0, items_ = 0;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint32_t, std::uint32_t> memo_;
  Pickle pickle_;
};

}  // namespace

Result<Pickle> read_pickle(std::span<const std::byte> bytes,
                           std::span<const std::string_view> globals) try {
  if (bytes.size() > kMaxPickleBytes) {
    return Error(ErrorCode::io, message("pickle: it must have at most ", kMaxPickleBytes,
                                        " bytes, got ", bytes.size()));
  }
  return PickleMachine(bytes, globals).run();
} catch (const Error& error) {
  return error;
}

}  // namespace phasor::io
