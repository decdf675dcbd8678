// The other end of a link, of which a test says every word.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <vector>

#include "links/life_directory.hpp"
#include "links/link_hello.hpp"
#include "os/link_socket.hpp"
#include "penstock/engine/neighbour.hpp"
#include "unit/share_support.hpp"

namespace penstock::test {

struct pretender {
    static constexpr std::uint32_t slots = 64, frames = 16;
    static constexpr std::uint64_t words = 4096;

    std::unique_ptr<host::cache_device> device = host::make_cpu_device();
    engine::cache_view view{};
    host::prepared_hello hello;
    host::life_directory directory;
    host::owned_fd socket;

    pretender() {
        view.page_shift = 12;
        view.leaf_shift = 4;
        view.word_count = words;
        view.frame_count = frames;
        view.file_slots = slots;
        view.words = static_cast<engine::page_word*>(
            device->allocate_shareable(words * sizeof(std::uint64_t)));
        view.file_words = static_cast<engine::file_word*>(
            device->allocate_shareable(slots * sizeof(engine::file_word)));
        view.frames = static_cast<std::byte*>(device->allocate_shareable(frames * page));
        EXPECT_EQ(directory.make(slots), 0);
        EXPECT_EQ(host::prepare_hello(*device, view, hello), 0);
        hello.message.id = 1;
        hello.message.directory_bytes = directory.memory().bytes();
    }

    // Of the socket there that is not its own.
    static sockaddr_un address_in(const std::string& folder, const std::string& own = "") {
        std::string path;
        for (const auto& entry : std::filesystem::directory_iterator(folder))
            if (entry.path() != own) path = entry.path().string();
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        EXPECT_LT(path.size(), sizeof address.sun_path);
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        return address;
    }
    void connect(const std::string& folder, const std::string& own = "") {
        const sockaddr_un address = address_in(folder, own);
        socket.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        ASSERT_EQ(
            ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            0);
    }
    void send(const void* bytes, std::size_t size, const std::vector<int>& fds = {}) const {
        static_cast<void>(host::send_message(socket.get(), bytes, size, fds.data(), fds.size()));
    }
    [[nodiscard]] std::vector<int> fds() const {
        std::vector<int> out;
        for (std::size_t i = 0; i < hello.fds.count; ++i) out.push_back(hello.fds.fd[i].get());
        out.push_back(directory.memory().fd());
        return out;
    }
    void greet() const { send(&hello.message, sizeof hello.message, fds()); }
    void greet_by(host::owned_fd& other_socket) {
        std::swap(socket, other_socket);
        greet();
        std::swap(socket, other_socket);
    }
    // How often its directory is mapped in this process, by itself too.
    [[nodiscard]] int mappings() const { return mappings_of(directory.memory().fd()); }
    // The next message: its size, 0 at the end, or what ended the wait for it.
    std::int64_t hear(host::link_hello& out) const {
        std::int64_t size = -EAGAIN;
        soon([&] {
            host::received_fds fds;
            size = host::receive_message(socket.get(), &out, sizeof out, fds);
            return size != -EAGAIN;
        });
        return size;
    }
    // The next message that is not a hello; at the end of the socket one without a verb.
    [[nodiscard]] host::link_message hear() const {
        host::link_hello room{};
        std::int64_t size = 0;
        do size = hear(room);
        while (size == static_cast<std::int64_t>(sizeof room));
        host::link_message said{};
        if (size == static_cast<std::int64_t>(sizeof said)) std::memcpy(&said, &room, sizeof said);
        return said;
    }
    void say(host::link_verb verb, std::uint64_t version) const {
        const host::link_message message{verb, version};
        send(&message, sizeof message);
    }
};

class hostile_share : public share {
protected:
    options quick() {
        options o = shared();
        o.host_wait_ms = 1000;
        o.writable = true;
        return o;
    }
};

}  // namespace penstock::test
