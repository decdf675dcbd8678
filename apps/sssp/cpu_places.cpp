// Places of a graph in host memory, and the reader of the whole file.

#include <cerrno>

#include "common/device_memory.hpp"
#include "common/message.hpp"
#include "common/files.hpp"
#include "graph_place.hpp"
#include "penstock/region.hpp"
#include "penstock/runtime.hpp"

namespace penstock::sssp {

status whole_reader::read_all(std::byte* to) const {
    return each_piece([&](std::uint32_t, std::uint64_t at, std::uint64_t bytes) {
        return read(to + at, bytes, at);
    });
}

// The places that need no GPU of their own: a region, and for CPU threads a copy and a map.

namespace {

class region_place final : public graph_place {
public:
    status open(runtime& rt, const graph_file& graph, bool outside_writers) {
        path_ = graph.path;
        outside_writers_ = outside_writers;
        region_options settings;
        settings.outside_writers = outside_writers;
        return map_region(rt, graph.real_path(), 0, 0, protection::read, settings, region_);
    }
    status refresh(std::uint64_t& pages) override {
        const std::int64_t code = region_->acquire();
        if (code < 0)
            return {static_cast<int>(code),
                    apps::shown(path_) + ": acquire: " + error_text(code) +
                        (code == -ESTALE ? "; the file became shorter, so start again"
                                         : "; see that the file can be read")};
        pages = static_cast<std::uint64_t>(code);
        return {};
    }
    [[nodiscard]] const std::byte* data() const override {
        return static_cast<const std::byte*>(region_->data());
    }
    [[nodiscard]] std::string note() const override {
        return outside_writers_ ? "region, any program may write the file"
                                : "region, what is written comes through the mount";
    }

private:
    std::string path_;
    bool outside_writers_ = true;
    std::unique_ptr<file_region> region_;
};

class copy_place final : public graph_place {
public:
    copy_place(const graph_file& graph, std::uint32_t threads)
        : reader_(graph, threads), memory_(apps::make_host_memory()) {}
    status open() {
        if (status s = reader_.open(); !s) return s;
        if (memory_->allocate(data_, reader_.bytes())) return {};
        return {-ENOMEM, "--method copy: " + format_size(reader_.bytes()) +
                             " of memory are not free; use --method cpu"};
    }
    status refresh(std::uint64_t& pages) override {
        pages = reader_.bytes() / page_bytes;
        return reader_.read_all(data_);
    }
    [[nodiscard]] const std::byte* data() const override { return data_; }
    [[nodiscard]] std::string note() const override {
        return "the whole file, by " + std::to_string(reader_.threads()) + " threads";
    }

private:
    whole_reader reader_;
    std::unique_ptr<apps::device_memory> memory_;
    std::byte* data_ = nullptr;
};

class mapped_place final : public graph_place {
public:
    status open(const graph_file& graph) {
        return file_.open(graph.real_path(), graph.shape.file_bytes());
    }
    status refresh(std::uint64_t& pages) override {
        pages = 0;
        return {};
    }
    [[nodiscard]] const std::byte* data() const override {
        return reinterpret_cast<const std::byte*>(file_.data());
    }
    [[nodiscard]] std::string note() const override { return "memory map"; }

private:
    apps::mapped_file file_;
};

}  // namespace

status make_region_place(runtime& rt, const graph_file& graph, bool outside_writers,
                         std::unique_ptr<graph_place>& out) {
    return open_place(std::make_unique<region_place>(), out, rt, graph, outside_writers);
}

status make_copy_place(const graph_file& graph, std::uint32_t threads,
                       std::unique_ptr<graph_place>& out) {
    return open_place(std::make_unique<copy_place>(graph, threads), out);
}

status make_mapped_place(const graph_file& graph, std::unique_ptr<graph_place>& out) {
    return open_place(std::make_unique<mapped_place>(), out, graph);
}

}  // namespace penstock::sssp
