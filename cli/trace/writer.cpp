#include "writer.hpp"

#include "common/message.hpp"
#include "common/numbers.hpp"
#include "trace_lines.hpp"

namespace penstock::trace {

namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

}  // namespace

status writer::open(const std::string& path, const std::string& input, const trace_header& header,
                    bool binary) {
    if (!input.empty() && apps::same_file(path, input))
        return {-EINVAL, "output file " + apps::shown(path) + ": is the input " +
                             apps::shown(input) + "; give another name"};
    binary_ = binary;
    buffer_.resize(buffer_bytes);
    if (status s = file_.open(path); !s) return s;
    return write_header(header);
}

status writer::write_header(const trace_header& header) {
    std::string text = header_text(header);
    if (!binary_) {
        text = std::string(text_first_line) + "\n" + text + "\n";
        return file_.write(text.data(), text.size());
    }
    if (text.size() > most_header_bytes)
        return {-EINVAL, "a header of " + apps::with_commas(text.size()) +
                             " bytes is too large; use fewer files or shorter paths"};
    binary_head head{{}, binary_version, static_cast<std::uint32_t>(text.size())};
    std::memcpy(head.magic, binary_magic, sizeof head.magic);
    text.resize(padded(text.size()));
    sum_.add(&head, sizeof head);
    sum_.add(text.data(), text.size());
    if (status s = file_.write(reinterpret_cast<const char*>(&head), sizeof head); !s) return s;
    return file_.write(text.data(), text.size());
}

status writer::flush(std::size_t least_free) {
    if (buffer_.size() - used_ >= least_free) return {};
    const std::size_t bytes = used_;
    used_ = 0;
    return file_.write(buffer_.data(), bytes);
}

void writer::put(const void* bytes, std::size_t count) {
    std::memcpy(buffer_.data() + used_, bytes, count);
    used_ += count;
}

status writer::add(std::span<const record> some) {
    records_ += some.size();
    return binary_ ? add_binary(some) : add_text(some);
}

status writer::add_text(std::span<const record> some) {
    for (const record& one : some) {
        if (status s = flush(most_record_bytes); !s) return s;
        used_ =
            static_cast<std::size_t>(print_record(one, buffer_.data() + used_) - buffer_.data());
    }
    return {};
}

status writer::add_binary(std::span<const record> some) {
    for (const record& one : some) {
        if (status s = flush(sizeof(binary_record)); !s) return s;
        const binary_record raw = packed(one);
        sum_.add(&raw, sizeof raw);
        put(&raw, sizeof raw);
    }
    return {};
}

status writer::commit() {
    if (binary_) {
        if (status s = flush(sizeof(binary_record)); !s) return s;
        const binary_record last{records_, kind_end << kind_shift, sum_.value(), 0, 0};
        put(&last, sizeof last);
    }
    if (status s = file_.write(buffer_.data(), used_); !s) return s;
    used_ = 0;
    return file_.commit();
}

}  // namespace penstock::trace
