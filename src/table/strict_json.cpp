#include "table/strict_json.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <nlohmann/json.hpp>

#include "table/elements.hpp"

namespace penstock::formats {

namespace {

using nlohmann::json;

// Takes the parser's events and builds the document; ends the parsing with a text in `problem`.
class json_builder final : public nlohmann::json_sax<json> {
public:
    bool null() override { return add({json_other{"null"}}) != nullptr; }
    bool boolean(bool value) override {
        return add({json_other{value ? "true" : "false"}}) != nullptr;
    }
    bool number_integer(number_integer_t value) override {
        return add({json_other{std::to_string(value)}}) != nullptr;
    }
    bool number_unsigned(number_unsigned_t value) override { return add({value}) != nullptr; }
    bool number_float(number_float_t, const string_t& text) override {
        return add({json_other{text}}) != nullptr;
    }
    bool string(string_t& value) override { return add({std::move(value)}) != nullptr; }
    bool binary(binary_t&) override { return false; }  // JSON text has none

    bool start_object(std::size_t) override { return open({json_object{}}); }
    bool key(string_t& name) override {
        std::get<json_object>(open_.back()->held).push_back({std::move(name), {}});
        return true;
    }
    bool end_object() override {
        auto& members = std::get<json_object>(open_.back()->held);
        std::sort(members.begin(), members.end(),
                  [](const auto& a, const auto& b) { return a.name < b.name; });
        const auto twice =
            std::adjacent_find(members.begin(), members.end(),
                               [](const auto& a, const auto& b) { return a.name == b.name; });
        if (twice != members.end())
            return fail("has the key " + in_quotes(twice->name) +
                        " twice; write it again with one of them");
        open_.pop_back();
        return true;
    }
    bool start_array(std::size_t) override { return open({json_list{}}); }
    bool end_array() override {
        open_.pop_back();
        return true;
    }

    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::detail::exception&) override {
        return fail("is no JSON from byte " + std::to_string(position) +
                    " of it on; the file is damaged, copy it from its source");
    }

    std::string problem;
    json_value document;

private:
    bool fail(std::string text) {
        problem = std::move(text);
        return false;
    }

    // Where the value lies now; null: there are too many.
    json_value* add(json_value value) {
        if (++values_ > most_json_values) {
            fail("has more than " + std::to_string(most_json_values) +
                 " values; split it into several files");
            return nullptr;
        }
        if (open_.empty()) {
            document = std::move(value);
            return &document;
        }
        if (auto* const list = std::get_if<json_list>(&open_.back()->held))
            return &list->emplace_back(std::move(value));
        json_value& member = std::get<json_object>(open_.back()->held).back().value;
        member = std::move(value);
        return &member;
    }

    bool open(json_value container) {
        if (open_.size() == most_json_depth)
            return fail("is nested deeper than " + std::to_string(most_json_depth) +
                        " levels; the file is damaged, copy it from its source");
        json_value* const added = add(std::move(container));
        if (added != nullptr) open_.push_back(added);
        return added != nullptr;
    }

    // A container does not grow while one of its values is open, so the pointers stay good.
    std::vector<json_value*> open_;
    std::size_t values_ = 0;
};

}  // namespace

const json_value* find_member(const json_object& object, std::string_view name) {
    const auto at = std::lower_bound(
        object.begin(), object.end(), name,
        [](const json_member& member, std::string_view text) { return member.name < text; });
    return at != object.end() && at->name == name ? &at->value : nullptr;
}

std::string shown(const json_value& value) {
    if (const auto* const other = value.as<json_other>()) return other->text;
    if (const auto* const number = value.as<std::uint64_t>()) return std::to_string(*number);
    if (const auto* const text = value.as<std::string>()) return in_quotes(*text);
    return value.as<json_list>() != nullptr ? "a list" : "an object";
}

status parse_object(const std::string& text, const std::string& subject, json_object& out) {
    // The parser would take a zero byte for the end of the text.
    if (const std::size_t zero = text.find('\0'); zero != std::string::npos)
        return {-EBADMSG, subject + " has a zero byte at byte " + std::to_string(zero) +
                              " of it; the file is damaged, copy it from its source"};
    json_builder builder;
    if (!json::sax_parse(text, &builder)) return {-EBADMSG, subject + " " + builder.problem};
    auto* const object = std::get_if<json_object>(&builder.document.held);
    if (object == nullptr)
        return {-EBADMSG, subject +
                              " is no JSON object; the file is damaged, copy it from its "
                              "source"};
    out = std::move(*object);
    return {};
}

}  // namespace penstock::formats
