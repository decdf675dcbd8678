// JSON of a header, read strictly: a key that stands twice in an object is refused, and so are deep
// nesting and more values than a header can need, zero bytes, and anything but an object.
//
// The values are types of our own, since destructors of nlohmann's take memory, and end the program
// where there is none. Its parser is used, and stays behind this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::formats {

inline constexpr std::size_t most_json_depth = 32;
inline constexpr std::size_t most_json_values = 4'000'000;

struct json_value;
struct json_member;
using json_list = std::vector<json_value>;
using json_object = std::vector<json_member>;  // by name, each name once

// null, true, false, and a number that is none of 0 to 2^64 - 1: as it stands in the text.
struct json_other {
    std::string text;
};

struct json_value {
    std::variant<json_other, std::uint64_t, std::string, json_list, json_object> held;

    // Null: it is something else.
    template <class Kind>
    [[nodiscard]] const Kind* as() const {
        return std::get_if<Kind>(&held);
    }
};

struct json_member {
    std::string name;
    json_value value;
};

// Null: there is no such member.
const json_value* find_member(const json_object& object, std::string_view name);

// For messages: "7", "null", "'F32'", "a list", "an object".
std::string shown(const json_value& value);

// `subject` begins the message: "FILE: the header". -EBADMSG. The memory taken is bounded by the
// number of values and the length of the text.
status parse_object(const std::string& text, const std::string& subject, json_object& out);

}  // namespace penstock::formats
