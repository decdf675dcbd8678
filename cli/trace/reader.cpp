#include "binary_form.hpp"
#include "record_source.hpp"
#include "trace.hpp"

namespace penstock::trace {

struct reader::parts {
    byte_source from;
    trace_header header;
    std::unique_ptr<record_source> records;
    bool binary = false;
    status failed;  // what next() said; it says so again
};

reader::reader() : parts_(std::make_unique<parts>()) {}
reader::~reader() = default;
reader::reader(reader&&) noexcept = default;
reader& reader::operator=(reader&&) noexcept = default;

status reader::open(const std::string& path, std::size_t piece_bytes) {
    parts_ = std::make_unique<parts>();
    parts& p = *parts_;
    if (status s = p.from.open(path, "trace", piece_bytes, most_line_bytes + 1); !s) return s;
    if (status s = p.from.reach(1); !s) return s;
    p.binary = p.from.size() > 0 && static_cast<unsigned char>(*p.from.begin()) == binary_magic[0];
    p.records = p.binary ? make_binary_source(p.from) : make_text_source(p.from);
    return p.records->begin(p.header);
}

const trace_header& reader::header() const { return parts_->header; }
bool reader::is_binary() const { return parts_->binary; }

status reader::next(std::vector<record>& out, std::size_t most) {
    out.clear();
    status& failed = parts_->failed;
    if (failed) failed = parts_->records->next(out, most);
    if (!failed) out.clear();
    return failed;
}

}  // namespace penstock::trace
