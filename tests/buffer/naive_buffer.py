"""The buffer of docs/guide/buffer.md, written from that text in the plainest way: lists that are
searched, and no count that is kept. It shares nothing with src/buffer, and must count exactly the
same. The numbers in comments are the steps of that page."""


class Block:
    def __init__(self, content, frame):
        self.content = content      # None: alone
        self.side, self.frame = "host", frame   # absent: no frame
        self.references = []        # (page, place), the newest last
        self.own = False


class Page:
    def __init__(self, name, blocks):
        self.name = name            # (file, page)
        self.blocks = [None] * blocks
        self.pins = 0


class Busy(Exception):
    """-EBUSY."""


class Lru:
    def __init__(self, _):
        self.frames = []            # the head first

    def enter(self, frame):
        self.frames.insert(0, frame)

    def leave(self, frame):
        self.frames.remove(frame)

    def touch(self, frame):
        if frame in self.frames:
            self.frames.remove(frame)
            self.frames.insert(0, frame)

    def pinned(self, frame):
        self.frames.remove(frame)

    def unpinned(self, frame):
        self.frames.insert(0, frame)

    def victim(self, may_go):
        return next(frame for frame in reversed(self.frames) if may_go(frame))


class Clock:
    def __init__(self, frames):
        self.bits, self.hand = [False] * frames, 0

    def enter(self, frame):
        self.bits[frame] = False

    def leave(self, frame):
        pass

    def touch(self, frame):
        self.bits[frame] = True

    def pinned(self, frame):
        pass

    def unpinned(self, frame):
        pass

    def victim(self, may_go):
        while True:
            frame = self.hand
            self.hand = (self.hand + 1) % len(self.bits)
            if may_go(frame):
                if not self.bits[frame]:
                    return frame
                self.bits[frame] = False


class Buffer:
    def __init__(self, host_pages, device_pages, blocks=1, table=None, order="lru", absent=0):
        self.d, self.table_limit = blocks, table or host_pages + device_pages + 1
        self.host_frames, self.device_frames = host_pages * blocks, device_pages * blocks
        self.free_host = list(reversed(range(self.host_frames)))
        self.free_device = list(reversed(range(self.device_frames)))
        self.order = (Lru if order == "lru" else Clock)(self.host_frames)
        self.device_list = []       # frames, the head first
        self.demotes = True         # False: the device rests
        self.absent, self.absent_limit = [], absent  # blocks, what became absent first, first
        # the table: unpinned ones in the order of loading or unpinning
        self.blocks, self.table = [], []
        self.dirty = []             # pages, what became dirty first, first
        self.counts = dict.fromkeys(
            "demotions promotions fills write_backs written_from_device dropped_pages".split(), 0)

    # Words

    def page(self, name):
        return next((page for page in self.table if page.name == name), None)

    def block_in(self, side, frame):
        return next(block for block in self.blocks if (block.side, block.frame) == (side, frame))

    def with_content(self, content):
        return next((block for block in self.blocks
                     if content is not None and block.content == content),
                    None)

    @staticmethod
    def is_pinned(block, but=None):
        return any(page.pins for page, _ in block.references if page is not but)

    def may_go(self, side):
        def answer(frame):
            block = self.block_in(side, frame)
            return not block.own and not self.is_pinned(block)
        return answer

    def where(self, page):
        if page is None or any(block.side == "absent" for block in page.blocks):
            return "nowhere"
        return "host" if all(block.side == "host" for block in page.blocks) else "device"

    # Steps

    def touch(self, name):                                                    # 1
        page = self.page(name)
        at = self.where(page)
        if at == "device":
            self.need_room(page)
            for block in page.blocks:
                block.own = True
        if at != "nowhere":
            for block in page.blocks:
                self.use(block)
            self.nothing_is_own()
        return at

    def load(self, name, contents):                                           # 2
        self.need_room(None)
        page = self.page(name)
        if page is not None:
            self.table.remove(page)
            self.table.append(page)
            self.fill(page, [block.content for block in page.blocks])
            return
        if len(self.table) == self.table_limit:
            unpinned = [page for page in self.table if not page.pins]
            if not unpinned:
                raise Busy
            self.drop(unpinned[0])
        page = Page(name, self.d)
        self.table.append(page)
        self.fill(page, contents)

    def replace(self, name, contents):                                        # 3
        page = self.page(name)
        at = self.where(page)
        if page is None:
            self.load(name, contents)
            page = self.page(name)
        else:
            self.need_room(page)
            pins = page.pins
            self.set_pins(page, 0)
            for place in range(self.d):
                self.take_reference(page, place)
            self.fill(page, contents)
            self.set_pins(page, pins)
        if page not in self.dirty:
            self.dirty.append(page)
        return at

    def fill(self, page, contents):                                           # 4
        for block in page.blocks:
            if block is not None:
                block.own = True
        for place, content in enumerate(contents):
            if page.blocks[place] is None:
                self.point(page, place, self.with_content(content))
        for place, content in enumerate(contents):
            if page.blocks[place] is None:
                self.point(page, place, self.with_content(content))
            block = page.blocks[place]
            if block is not None and block.side != "absent":
                self.use(block)
                continue
            frame = self.free_host_frame()
            if block is not None:
                self.absent.remove(block)
                block.side, block.frame = "host", frame
            else:
                block = Block(content, frame)
                self.blocks.append(block)
                self.point(page, place, block)
            self.order.enter(frame)
            self.counts["fills"] += 1
        self.nothing_is_own()

    def point(self, page, place, block):
        if block is not None:
            page.blocks[place] = block
            block.references.append((page, place))
            block.own = True

    def nothing_is_own(self):
        for block in self.blocks:
            block.own = False

    def use(self, block):                                                     # 5
        if block.side == "host":
            self.order.touch(block.frame)
            return
        self.counts["promotions"] += 1
        self.device_list.remove(block.frame)
        if self.free_host:
            self.free_device.append(block.frame)
            block.side, block.frame = "host", self.free_host.pop()
        else:
            victim = self.block_in("host", self.order.victim(self.may_go("host")))
            self.counts["demotions"] += 1
            self.order.leave(victim.frame)
            (victim.side, victim.frame), (block.side, block.frame) = (
                (block.side, block.frame), (victim.side, victim.frame))
            self.device_list.insert(0, victim.frame)
        self.order.enter(block.frame)

    def free_host_frame(self):                                                # 6
        while not self.free_host:
            demotes = self.device_frames and self.demotes
            if demotes and not self.free_device:
                self.evict(self.block_in("device",
                                         next(filter(self.may_go("device"),
                                                     reversed(self.device_list)))))
                continue
            victim = self.block_in("host", self.order.victim(self.may_go("host")))
            if not demotes:
                self.evict(victim)
                continue
            self.counts["demotions"] += 1
            self.order.leave(victim.frame)
            self.free_host.append(victim.frame)
            victim.side, victim.frame = "device", self.free_device.pop()
            self.device_list.insert(0, victim.frame)
        return self.free_host.pop()

    def take_reference(self, page, place):                                    # 7
        block = page.blocks[place]
        page.blocks[place] = None
        block.references.remove((page, place))
        if block.references:
            return
        self.blocks.remove(block)
        self.leave_frame(block)

    def leave_frame(self, block):
        if block.side == "host":
            self.order.leave(block.frame)
            self.free_host.append(block.frame)
        elif block.side == "device":
            self.device_list.remove(block.frame)
            self.free_device.append(block.frame)
        else:
            self.absent.remove(block)

    def evict(self, block):                                                   # 8
        while block.references:
            shared = len({page.name for page, _ in block.references}) >= 2
            others = [other for other in self.absent if not other.own]
            if shared and len(self.absent) < self.absent_limit:
                for page, _ in reversed(block.references):
                    if page in self.dirty:
                        self.write_back(page)
                self.leave_frame(block)
                block.side, block.frame = "absent", None
                self.absent.append(block)
                return
            self.drop_pages_of(others[0] if shared and others else block)

    def drop_pages_of(self, block):
        while block.references:
            self.drop(block.references[-1][0])

    def drop(self, page):
        if page in self.dirty:
            self.write_back(page)
        for place in range(self.d):
            self.take_reference(page, place)
        self.table.remove(page)
        self.counts["dropped_pages"] += 1

    def write_back(self, page):
        self.dirty.remove(page)
        self.counts["write_backs"] += 1
        self.counts["written_from_device"] += sum(block.side == "device" for block in page.blocks)

    def need_room(self, page):                                                # 9
        pinned = {block for other in self.table if other.pins and other is not page
                  for block in other.blocks}
        if len(pinned) + self.d > self.host_frames:
            raise Busy

    def pin(self, name):                                                      # 10
        page = self.page(name)
        if self.where(page) == "host":
            self.set_pins(page, page.pins + 1)

    def unpin(self, name):
        page = self.page(name)
        if page and page.pins:
            if page.pins == 1:
                self.table.remove(page)
                self.table.append(page)
            self.set_pins(page, page.pins - 1)

    def set_pins(self, page, pins):
        before = [block for block in self.blocks if self.is_pinned(block)]
        page.pins = pins
        for place, block in enumerate(page.blocks):
            if block in page.blocks[place + 1:]:
                continue                # the last place counts where a block is there twice
            if self.is_pinned(block) and block not in before:
                self.order.pinned(block.frame)
            elif not self.is_pinned(block) and block in before:
                self.order.unpinned(block.frame)

    def flush(self, file):                                                    # 11
        for page in [page for page in self.dirty if page.name[0] == file]:
            self.write_back(page)

    # What these do to accesses

    def read(self, name, contents):
        at = self.touch(name)
        if at == "nowhere":
            self.load(name, contents)
        return at

    def write(self, name, contents, in_place):
        if not in_place:
            return self.replace(name, contents)
        at = self.touch(name)
        if at == "nowhere":
            self.replace(name, contents)
        elif self.page(name) not in self.dirty:
            self.dirty.append(self.page(name))
        return at

    def at_the_end(self):
        sharing = sum(any(len(block.references) > 1 for block in page.blocks)
                      for page in self.table)
        return {"pages": len(self.table), "dirty_pages": len(self.dirty),
                "pages_with_sharing": sharing, "blocks": len(self.blocks) - len(self.absent),
                "absent_blocks": len(self.absent),
                "block_references": sum(len(block.references) for block in self.blocks)}
