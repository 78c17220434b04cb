// The page of a gallery. Data is shown through textContent and attributes only, never as HTML.

const TEXTS = {
  en: {ask: 'Describe the image', example: 'e.g. dogs on the beach', search: 'Search', language: 'Language of the text', recognise: 'Language: detect', byPicture: 'Search by image', like: 'Similar to this image', share: 'Weight of the image', forget: 'Remove the image',
    filters: 'Filters', active: '({n} set)', extra: 'Further condition:', apply: 'Apply', clear: 'Clear filters', is: 'is', starts: 'starts with', values: 'values, separated by commas', from: 'from', to: 'to', any: 'any', yes: 'yes', no: 'no',
    hint: 'Describe the image in one of these languages: {languages}. Or choose, drop or paste an image.', shown: 'Shown: {pictures}', read: 'Language: {language}', readBy: '{language}, read by {model}, which was not taught it', recall: 'recall in languages left out of its training: {recall}', presumed: 'perhaps {language}; if it is another, choose it above', mixed: 'several languages ({seems}), read as {language}', unreadBy: '{seems}: no model here reads this; results are arbitrary', script: '{script} letters', untaught: '{n} more languages, not taught', unfit: 'Perhaps no image fits this query.', unread: 'The model does not know these words: {words}', negated: 'Not understood: {words}. Images with it are found, not images without it.', nowhere: 'Nothing here looks like this.', taught: 'Read by what the image classifier knows, as the model was not taught: {words}', unlike: 'These images are unlike those that the model was trained on; results may be arbitrary.', none: 'No image matches. Try other words or fewer filters.', more: 'Show more', place: 'Rank {n}, score {score}',
    close: 'Close', similar: 'Similar images', original: 'Open original', facts: 'Details', change: 'Edit', save: 'Save', saved: 'Saved.', remove: 'Remove', sure: 'Remove this image from the gallery permanently?', keep: 'Cancel', removed: 'Removed: {id}', unknown: 'unknown',
    add: 'Add images', adding: '{i} of {n}', stop: 'Stop', added: 'Added: {pictures}', waiting: 'Too many requests; continuing in {n} s.', locked: 'This gallery needs an access token', token: 'Access token', open: 'Open', wrong: 'Wrong access token.',
    refused: 'The request failed.', gone: 'This image does not exist any more.', forbidden: 'Not allowed.', large: 'Too large. The maximum is {n}.', often: 'Too many requests. Try again in {n} s.', slow: 'The request took too long. Try again in a moment.', offline: 'The gallery cannot be reached. Check that it is running and that the connection works.', broken: 'An error occurred in the gallery. Try again.', unreadable: 'This file cannot be read as an image.', invalid: 'Check the numbers in the filters.',
    pictures: {one: '{n} image', other: '{n} images'}, columns: {kind: 'Type', width: 'Width', height: 'Height', bytes: 'File size (bytes)', modified: 'File modified', added: 'Added', description: 'Description'}, kinds: {picture: 'image', clip: 'video'}},
  de: {ask: 'Was soll auf dem Bild zu sehen sein?', example: 'z. B. Hunde am Strand', search: 'Suchen', language: 'Sprache des Textes', recognise: 'Sprache: auto', byPicture: 'Mit Bild suchen', like: 'Ähnlich wie dieses Bild', share: 'Gewicht des Bildes', forget: 'Bild wieder entfernen',
    filters: 'Filter', active: '({n} gesetzt)', extra: 'Weitere Bedingung:', apply: 'Anwenden', clear: 'Filter löschen', is: 'ist', starts: 'beginnt mit', values: 'Werte, durch Kommas getrennt', from: 'von', to: 'bis', any: 'beliebig', yes: 'ja', no: 'nein',
    hint: 'Beschreiben Sie es in einer dieser Sprachen: {languages}. Oder wählen Sie ein Bild aus, ziehen Sie es hierher oder fügen Sie es ein.', shown: 'Angezeigt: {pictures}', read: 'Sprache: {language}', readBy: '{language}, gelesen von {model}, dem es nicht beigebracht wurde', recall: 'Trefferquote in Sprachen, die beim Training fehlten: {recall}', presumed: 'vielleicht {language}; wenn es eine andere ist, oben wählen', mixed: 'mehrere Sprachen ({seems}), gelesen als {language}', unreadBy: '{seems}: Das liest hier kein Modell; die Treffer sind zufällig', script: 'Schrift {script}', untaught: '{n} weitere Sprachen, nicht beigebracht', unfit: 'Vielleicht passt kein Bild zu dieser Anfrage.', unread: 'Diese Wörter kennt das Modell nicht: {words}', negated: 'Nicht verstanden: {words}. Gefunden wird, was genannt ist, nicht, was fehlen soll.', nowhere: 'Nichts hier sieht so aus.', taught: 'Gelesen mit dem, was der Bildklassifikator kennt, da das Modell nicht gelernt hat: {words}', unlike: 'Diese Bilder sind anders als die, mit denen das Modell trainiert wurde; die Ergebnisse können beliebig sein.', none: 'Kein Bild passt. Versuchen Sie andere Wörter oder weniger Filter.', more: 'Mehr anzeigen', place: 'Platz {n}, Wert {score}',
    close: 'Schließen', similar: 'Ähnliche Bilder', original: 'Original öffnen', facts: 'Angaben', change: 'Ändern', save: 'Speichern', saved: 'Gespeichert.', remove: 'Löschen', sure: 'Dieses Bild endgültig aus der Galerie löschen?', keep: 'Behalten', removed: 'Gelöscht: {id}', unknown: 'nicht bekannt',
    add: 'Bilder hinzufügen', adding: '{i} von {n}', stop: 'Anhalten', added: 'Hinzugefügt: {pictures}', waiting: 'Zu viele Anfragen; weiter in {n} s.', locked: 'Diese Galerie fragt nach ihrem Token', token: 'Token', open: 'Öffnen', wrong: 'Das ist nicht das Token dieser Galerie.',
    refused: 'Das ist nicht möglich.', gone: 'Dieses Bild ist nicht (mehr) da.', forbidden: 'Das ist hier nicht erlaubt.', large: 'Das ist zu groß. Höchstens {n} sind möglich.', often: 'Zu viele Anfragen. Bitte versuchen Sie es in {n} s noch einmal.', slow: 'Das hat zu lange gedauert. Bitte versuchen Sie es gleich noch einmal.', offline: 'Die Galerie ist nicht erreichbar. Läuft sie noch, und steht die Verbindung?', broken: 'In der Galerie ist etwas schiefgegangen. Bitte versuchen Sie es noch einmal.', unreadable: 'Diese Datei lässt sich nicht als Bild lesen.', invalid: 'Bitte prüfen Sie die Zahlen in den Filtern.',
    pictures: {one: '{n} Bild', other: '{n} Bilder'}, columns: {kind: 'Art', width: 'Breite', height: 'Höhe', bytes: 'Dateigröße (Bytes)', modified: 'Datei geändert', added: 'Hinzugefügt', description: 'Beschreibung'}, kinds: {picture: 'Bild', clip: 'Video'}},
  fr: {ask: 'Que doit montrer l’image ?', example: 'p. ex. des chiens sur la plage', search: 'Rechercher', language: 'Langue du texte', recognise: 'Langue : auto', byPicture: 'Chercher par image', like: 'Semblable à cette image', share: 'Poids de l’image', forget: 'Retirer l’image',
    filters: 'Filtres', active: '({n} en place)', extra: 'Autre condition :', apply: 'Appliquer', clear: 'Effacer les filtres', is: 'est', starts: 'commence par', values: 'valeurs séparées par des virgules', from: 'de', to: 'à', any: 'indifférent', yes: 'oui', no: 'non',
    hint: 'Décrivez-la dans l’une de ces langues : {languages}. Ou choisissez, déposez ou collez une image.', shown: 'Affiché : {pictures}', read: 'Langue : {language}', readBy: '{language}, lu par {model}, qui ne l’a pas appris', recall: 'rappel dans des langues absentes de son entraînement : {recall}', presumed: 'peut-être {language} ; si c’en est une autre, choisissez-la ci-dessus', mixed: 'plusieurs langues ({seems}), lu comme {language}', unreadBy: '{seems} : aucun modèle ne le lit ici ; les résultats sont arbitraires', script: 'écriture {script}', untaught: '{n} autres langues, non apprises', unfit: 'Peut-être qu’aucune image ne convient à cette requête.', unread: 'Le modèle ne connaît pas ces mots : {words}', negated: 'Non compris : {words}. Les images trouvées montrent ce qui est nommé au lieu de l’exclure.', nowhere: 'Rien ici n’y ressemble.', taught: 'Lu d’après ce que connaît le classifieur d’images, car le modèle n’a pas appris : {words}', unlike: 'Ces images ne ressemblent pas à celles qui ont servi à entraîner le modèle ; les résultats peuvent être arbitraires.', none: 'Aucune image ne convient. Essayez d’autres mots ou moins de filtres.', more: 'Afficher plus', place: 'Place {n}, score {score}',
    close: 'Fermer', similar: 'Images semblables', original: 'Ouvrir l’original', facts: 'Informations', change: 'Modifier', save: 'Enregistrer', saved: 'Enregistré.', remove: 'Supprimer', sure: 'Supprimer définitivement cette image de la galerie ?', keep: 'La garder', removed: 'Supprimé : {id}', unknown: 'inconnu',
    add: 'Ajouter des images', adding: '{i} sur {n}', stop: 'Arrêter', added: 'Ajouté : {pictures}', waiting: 'Trop de requêtes ; reprise dans {n} s.', locked: 'Cette galerie demande son jeton', token: 'Jeton', open: 'Ouvrir', wrong: 'Ce n’est pas le jeton de cette galerie.',
    refused: 'Ce n’est pas possible.', gone: 'Cette image n’existe pas ou plus.', forbidden: 'Ce n’est pas autorisé ici.', large: 'C’est trop volumineux. Le maximum est de {n}.', often: 'Trop de requêtes. Veuillez réessayer dans {n} s.', slow: 'Cela a pris trop de temps. Veuillez réessayer dans un instant.', offline: 'La galerie est injoignable. Fonctionne-t-elle encore, et la connexion est-elle bonne ?', broken: 'Une erreur s’est produite dans la galerie. Veuillez réessayer.', unreadable: 'Ce fichier ne peut pas être lu comme une image.', invalid: 'Veuillez vérifier les nombres dans les filtres.',
    pictures: {one: '{n} image', other: '{n} images'}, columns: {kind: 'Type', width: 'Largeur', height: 'Hauteur', bytes: 'Taille du fichier (octets)', modified: 'Fichier modifié', added: 'Ajouté', description: 'Description'}, kinds: {picture: 'image', clip: 'vidéo'}},
  cs: {ask: 'Co má být na obrázku?', example: 'např. psi na pláži', search: 'Hledat', language: 'Jazyk textu', recognise: 'Jazyk: auto', byPicture: 'Podle obrázku', like: 'Podobné tomuto obrázku', share: 'Váha obrázku', forget: 'Odebrat obrázek',
    filters: 'Filtry', active: '(nastaveno: {n})', extra: 'Další podmínka:', apply: 'Použít', clear: 'Zrušit filtry', is: 'je', starts: 'začíná na', values: 'hodnoty oddělené čárkami', from: 'od', to: 'do', any: 'libovolné', yes: 'ano', no: 'ne',
    hint: 'Popište ho v některém z těchto jazyků: {languages}. Nebo obrázek vyberte, přetáhněte sem či vložte.', shown: 'Zobrazeno: {pictures}', read: 'Jazyk: {language}', readBy: '{language}; čte {model}, který se jej neučil', recall: 'úplnost v jazycích vynechaných z učení: {recall}', presumed: 'možná {language}; je-li to jiný, vyberte ho nahoře', mixed: 'více jazyků ({seems}), čteno jako {language}', unreadBy: '{seems}: žádný model to zde nečte; výsledky jsou náhodné', script: 'písmo {script}', untaught: 'další jazyky, kterým se model neučil ({n})', unfit: 'Tomuto dotazu možná neodpovídá žádný obrázek.', unread: 'Model nezná tato slova: {words}', negated: 'Nerozumí se: {words}. Najdou se obrázky s tím, co je uvedeno, ne bez toho.', nowhere: 'Nic zde tak nevypadá.', taught: 'Přečteno podle toho, co zná klasifikátor obrázků, protože model se neučil: {words}', unlike: 'Tyto obrázky se nepodobají těm, na kterých se model učil; výsledky mohou být libovolné.', none: 'Žádný obrázek neodpovídá. Zkuste jiná slova nebo méně filtrů.', more: 'Zobrazit další', place: '{n}. místo, skóre {score}',
    close: 'Zavřít', similar: 'Podobné obrázky', original: 'Otevřít originál', facts: 'Údaje', change: 'Změnit', save: 'Uložit', saved: 'Uloženo.', remove: 'Odstranit', sure: 'Odstranit tento obrázek z galerie natrvalo?', keep: 'Ponechat', removed: 'Odstraněno: {id}', unknown: 'není známo',
    add: 'Přidat obrázky', adding: '{i} z {n}', stop: 'Zastavit', added: 'Přidáno: {pictures}', waiting: 'Příliš mnoho požadavků; pokračování za {n} s.', locked: 'Tato galerie vyžaduje svůj token', token: 'Token', open: 'Otevřít', wrong: 'To není token této galerie.',
    refused: 'To není možné.', gone: 'Tento obrázek tu (už) není.', forbidden: 'To zde není povoleno.', large: 'To je příliš velké. Nejvýše {n}.', often: 'Příliš mnoho požadavků. Zkuste to prosím znovu za {n} s.', slow: 'Trvalo to příliš dlouho. Zkuste to prosím za chvíli znovu.', offline: 'Galerie není dostupná. Běží ještě a je v pořádku připojení?', broken: 'V galerii se něco nepovedlo. Zkuste to prosím znovu.', unreadable: 'Tento soubor nelze přečíst jako obrázek.', invalid: 'Zkontrolujte prosím čísla ve filtrech.',
    pictures: {one: '{n} obrázek', few: '{n} obrázky', many: '{n} obrázku', other: '{n} obrázků'}, columns: {kind: 'Druh', width: 'Šířka', height: 'Výška', bytes: 'Velikost souboru (bajty)', modified: 'Soubor změněn', added: 'Přidáno', description: 'Popis'}, kinds: {picture: 'obrázek', clip: 'video'}},
  zh: {ask: '图片里应该有什么？', example: '例如：海滩上的两只狗', search: '搜索', language: '文字的语言', recognise: '语言：自动', byPicture: '以图搜图', like: '与这张图片相似', share: '图片所占比重', forget: '去掉这张图片',
    filters: '筛选', active: '（已设 {n} 项）', extra: '其他条件：', apply: '应用', clear: '清除筛选', is: '等于', starts: '开头为', values: '多个值用逗号分隔', from: '从', to: '到', any: '不限', yes: '是', no: '否',
    hint: '请用以下任一语言描述：{languages}。也可以选择、拖入或粘贴一张图片。', shown: '已显示 {pictures}', read: '语言：{language}', readBy: '{language}，由未学过该语言的 {model} 读取', recall: '训练时未用的语言的召回率：{recall}', presumed: '可能是{language}；如果不是，请在上方选择', mixed: '含多种语言（{seems}），按{language}读取', unreadBy: '{seems}：这里没有模型能读，结果是任意的', script: '{script} 文字', untaught: '另外 {n} 种未学过的语言', unfit: '也许没有符合此查询的图片。', unread: '模型不认识这些词：{words}', negated: '无法理解“{words}”：找到的是含有所述内容的图片，而不是不含的。', nowhere: '这里没有类似的图片。', taught: '按图像分类器所知来理解，因为模型没有学过：{words}', unlike: '这些图片与模型训练所用的图片不同，结果可能是随意的。', none: '没有符合的图片。请换个说法，或减少筛选条件。', more: '显示更多', place: '第 {n} 名，得分 {score}',
    close: '关闭', similar: '查找相似图片', original: '打开原图', facts: '信息', change: '修改', save: '保存', saved: '已保存。', remove: '删除', sure: '确定要从图库中永久删除这张图片吗？', keep: '保留', removed: '已删除：{id}', unknown: '未知',
    add: '添加图片', adding: '第 {i} 张，共 {n} 张', stop: '停止', added: '已添加 {pictures}', waiting: '请求过多，{n} 秒后继续。', locked: '访问此图库需要令牌', token: '令牌', open: '打开', wrong: '令牌不正确。',
    refused: '无法完成。', gone: '这张图片不存在或已被删除。', forbidden: '此处不允许这样操作。', large: '文件太大，最大为 {n}。', often: '请求过多，请在 {n} 秒后重试。', slow: '耗时过长，请稍后重试。', offline: '无法连接图库。请检查图库是否仍在运行以及网络是否正常。', broken: '图库出了点问题，请重试。', unreadable: '无法将此文件读取为图片。', invalid: '请检查筛选条件中的数字。',
    pictures: {other: '{n} 张图片'}, columns: {kind: '类型', width: '宽度', height: '高度', bytes: '文件大小（字节）', modified: '文件修改时间', added: '添加时间', description: '描述'}, kinds: {picture: '图片', clip: '视频'}},
  ja: {ask: 'どんな画像を探しますか？', example: '例：浜辺の犬', search: '検索', language: 'テキストの言語', recognise: '言語：自動', byPicture: '画像で検索', like: 'この画像に似たもの', share: '画像の重み', forget: '画像を外す',
    filters: '絞り込み', active: '（{n} 件設定中）', extra: 'その他の条件：', apply: '適用', clear: '絞り込みを解除', is: '一致', starts: '前方一致', values: '値（コンマ区切り）', from: '下限', to: '上限', any: '指定なし', yes: 'はい', no: 'いいえ',
    hint: '次のいずれかの言語で入力してください：{languages}。画像を選択、ドロップ、または貼り付けて検索することもできます。', shown: '{pictures}を表示中', read: '言語：{language}', readBy: '{language}（学習していない {model} が読み取り）', recall: '学習から除いた言語での再現率：{recall}', presumed: 'おそらく{language}。違う場合は上で選んでください', mixed: '複数の言語（{seems}）、{language}として読み取り', unreadBy: '{seems}：読めるモデルがないため、結果は無作為です', script: '{script} 文字', untaught: 'ほか {n} 言語（未学習）', unfit: 'この検索に合う画像はないかもしれません。', unread: 'モデルが知らない言葉：{words}', negated: '「{words}」は理解されません。書かれたものは除外されず、それを含む画像が見つかります。', nowhere: '似た画像はここにありません。', taught: '画像分類器の知識で読みました。モデルが習っていない言葉：{words}', unlike: 'これらの画像はモデルの学習に使われた画像と異なるため、結果は当てにならないことがあります。', none: '該当する画像がありません。別の言葉にするか、絞り込みを減らしてください。', more: 'さらに表示', place: '{n} 位、スコア {score}',
    close: '閉じる', similar: '似た画像を探す', original: '元の画像を開く', facts: '情報', change: '編集', save: '保存', saved: '保存しました。', remove: '削除', sure: 'この画像をギャラリーから完全に削除しますか？', keep: '残す', removed: '削除しました：{id}', unknown: '不明',
    add: '画像を追加', adding: '{n} 件中 {i} 件目', stop: '中止', added: '{pictures}を追加しました', waiting: 'リクエストが多すぎます。{n} 秒後に再開します。', locked: 'このギャラリーにはトークンが必要です', token: 'トークン', open: '開く', wrong: 'トークンが正しくありません。',
    refused: '実行できませんでした。', gone: 'この画像は存在しないか、すでに削除されています。', forbidden: 'ここでは許可されていません。', large: '大きすぎます。上限は {n} です。', often: 'リクエストが多すぎます。{n} 秒後にもう一度お試しください。', slow: '時間がかかりすぎました。しばらくしてからもう一度お試しください。', offline: 'ギャラリーに接続できません。起動しているか、接続に問題がないかご確認ください。', broken: 'ギャラリーで問題が発生しました。もう一度お試しください。', unreadable: 'このファイルは画像として読み込めません。', invalid: '絞り込みの数値をご確認ください。',
    pictures: {other: '{n} 件の画像'}, columns: {kind: '種類', width: '幅', height: '高さ', bytes: 'ファイルサイズ（バイト）', modified: 'ファイルの更新日', added: '追加日', description: '説明'}, kinds: {picture: '画像', clip: '動画'}},
  es: {ask: '¿Qué debe mostrar la imagen?', example: 'p. ej., perros en la playa', search: 'Buscar', language: 'Idioma del texto', recognise: 'Idioma: auto', byPicture: 'Buscar por imagen', like: 'Parecido a esta imagen', share: 'Peso de la imagen', forget: 'Quitar la imagen',
    filters: 'Filtros', active: '({n} en uso)', extra: 'Otra condición:', apply: 'Aplicar', clear: 'Borrar filtros', is: 'es', starts: 'empieza por', values: 'valores separados por comas', from: 'desde', to: 'hasta', any: 'cualquiera', yes: 'sí', no: 'no',
    hint: 'Descríbela en cualquiera de estos idiomas: {languages}. O elige, arrastra o pega una imagen.', shown: 'Mostrando {pictures}', read: 'Idioma: {language}', readBy: '{language}, leído por {model}, que no lo ha aprendido', recall: 'exhaustividad en idiomas ausentes de su entrenamiento: {recall}', presumed: 'quizá {language}; si es otro, elígelo arriba', mixed: 'varios idiomas ({seems}), leído como {language}', unreadBy: '{seems}: aquí ningún modelo lo lee; los resultados son arbitrarios', script: 'escritura {script}', untaught: '{n} idiomas más, no aprendidos', unfit: 'Quizá ninguna imagen responda a esta consulta.', unread: 'El modelo no conoce estas palabras: {words}', negated: 'No se entiende: {words}. Se encuentran imágenes con lo nombrado, no sin ello.', nowhere: 'Nada aquí se parece a esto.', taught: 'Leído con lo que conoce el clasificador de imágenes, pues el modelo no aprendió: {words}', unlike: 'Estas imágenes no se parecen a las que sirvieron para entrenar el modelo; los resultados pueden ser arbitrarios.', none: 'Ninguna imagen coincide. Prueba con otras palabras o con menos filtros.', more: 'Mostrar más', place: 'Puesto {n}, puntuación {score}',
    close: 'Cerrar', similar: 'Imágenes parecidas', original: 'Abrir el original', facts: 'Datos', change: 'Modificar', save: 'Guardar', saved: 'Guardado.', remove: 'Eliminar', sure: '¿Eliminar esta imagen de la galería para siempre?', keep: 'Conservarla', removed: 'Eliminado: {id}', unknown: 'desconocido',
    add: 'Añadir imágenes', adding: '{i} de {n}', stop: 'Detener', added: 'Añadido: {pictures}', waiting: 'Demasiadas solicitudes; se continúa en {n} s.', locked: 'Esta galería pide su token', token: 'Token', open: 'Abrir', wrong: 'Ese no es el token de esta galería.',
    refused: 'No es posible.', gone: 'Esta imagen no existe o ya no está.', forbidden: 'Eso no está permitido aquí.', large: 'Es demasiado grande. El máximo es {n}.', often: 'Demasiadas solicitudes. Vuelve a intentarlo en {n} s.', slow: 'Ha tardado demasiado. Vuelve a intentarlo dentro de un momento.', offline: 'No se puede acceder a la galería. ¿Sigue en marcha y funciona la conexión?', broken: 'Algo ha fallado en la galería. Vuelve a intentarlo.', unreadable: 'Este archivo no se puede leer como imagen.', invalid: 'Revisa los números de los filtros.',
    pictures: {one: '{n} imagen', many: '{n} de imágenes', other: '{n} imágenes'}, columns: {kind: 'Tipo', width: 'Ancho', height: 'Alto', bytes: 'Tamaño del archivo (bytes)', modified: 'Archivo modificado', added: 'Añadido', description: 'Descripción'}, kinds: {picture: 'imagen', clip: 'vídeo'}},
  ar: {ask: 'ماذا تريد أن ترى في الصورة؟', example: 'مثلًا: كلاب على الشاطئ', search: 'بحث', language: 'لغة النص', recognise: 'اللغة: تلقائي', byPicture: 'البحث بصورة', like: 'مشابه لهذه الصورة', share: 'وزن الصورة', forget: 'إزالة الصورة',
    filters: 'عوامل التصفية', active: '(المفعّل: {n})', extra: 'شرط آخر:', apply: 'تطبيق', clear: 'مسح عوامل التصفية', is: 'هو', starts: 'يبدأ بـ', values: 'قيم مفصولة بفواصل', from: 'من', to: 'إلى', any: 'أي قيمة', yes: 'نعم', no: 'لا',
    hint: 'صف ما تبحث عنه بإحدى هذه اللغات: {languages}. أو اختر صورة أو اسحبها إلى هنا أو الصقها.', shown: 'المعروض: {pictures}', read: 'اللغة: {language}', readBy: '{language}، يقرؤها {model} الذي لم يتعلّمها', recall: 'الاستدعاء في لغات لم يتدرب عليها: {recall}', presumed: 'ربما {language}؛ إن كانت لغة أخرى فاخترها أعلاه', mixed: 'عدة لغات ({seems})، قُرئت على أنها {language}', unreadBy: '{seems}: لا يقرؤها أي نموذج هنا، والنتائج عشوائية', script: 'حروف {script}', untaught: '{n} لغة أخرى لم تُتعلَّم', unfit: 'ربما لا توجد صورة تناسب هذا الطلب.', unread: 'لا يعرف النموذج هذه الكلمات: {words}', negated: 'لا يُفهم النفي: {words}. تظهر الصور التي فيها المذكور، لا الخالية منه.', nowhere: 'لا شيء هنا يشبه ذلك.', taught: 'قُرئ بما يعرفه مصنِّف الصور لأن النموذج لم يتعلّم: {words}', unlike: 'تختلف هذه الصور عن الصور التي دُرِّب عليها النموذج، وقد تكون النتائج عشوائية.', none: 'لا توجد صورة مطابقة. جرّب كلمات أخرى أو عوامل تصفية أقل.', more: 'عرض المزيد', place: 'المرتبة {n}، الدرجة {score}',
    close: 'إغلاق', similar: 'صور مشابهة', original: 'فتح الصورة الأصلية', facts: 'المعلومات', change: 'تعديل', save: 'حفظ', saved: 'تم الحفظ.', remove: 'حذف', sure: 'هل تريد حذف هذه الصورة من المعرض نهائيًا؟', keep: 'الإبقاء عليها', removed: 'تم الحذف: {id}', unknown: 'غير معروف',
    add: 'إضافة صور', adding: '{i} من {n}', stop: 'إيقاف', added: 'تمت إضافة: {pictures}', waiting: 'طلبات كثيرة جدًا؛ المتابعة بعد {n} ث.', locked: 'يتطلب هذا المعرض رمز الدخول الخاص به', token: 'رمز الدخول', open: 'فتح', wrong: 'رمز الدخول غير صحيح.',
    refused: 'هذا غير ممكن.', gone: 'هذه الصورة غير موجودة أو لم تعد موجودة.', forbidden: 'هذا غير مسموح به هنا.', large: 'الحجم كبير جدًا. الحد الأقصى {n}.', often: 'طلبات كثيرة جدًا. يُرجى إعادة المحاولة بعد {n} ث.', slow: 'استغرق ذلك وقتًا طويلًا. يُرجى إعادة المحاولة بعد قليل.', offline: 'تعذّر الوصول إلى المعرض. هل ما زال يعمل، وهل الاتصال سليم؟', broken: 'حدث خطأ في المعرض. يُرجى إعادة المحاولة.', unreadable: 'تعذّرت قراءة هذا الملف كصورة.', invalid: 'يُرجى التحقق من الأرقام في عوامل التصفية.',
    pictures: {zero: 'لا صور', one: 'صورة واحدة', two: 'صورتان', few: '{n} صور', many: '{n} صورة', other: '{n} صورة'}, columns: {kind: 'النوع', width: 'العرض', height: 'الارتفاع', bytes: 'حجم الملف (بايت)', modified: 'تاريخ تعديل الملف', added: 'تاريخ الإضافة', description: 'الوصف'}, kinds: {picture: 'صورة', clip: 'فيديو'}},
}

// ---- texts and numbers in the language of the browser
const UI = [...navigator.languages, 'en'].map(l => l.split('-')[0].toLowerCase()).find(l => l in TEXTS), T = TEXTS[UI]
const PLACE = navigator.languages.find(l => l.toLowerCase().split('-')[0] === UI) ?? UI // numbers and dates in the format of the country
const plural = new Intl.PluralRules(UI), amount = n => new Intl.NumberFormat(PLACE).format(n)
const say = (key, given = {}) => T[key].replace(/\{(\w+)\}/g, (_, name) => given[name])
const pictures = n => (T.pictures[plural.select(n)] ?? T.pictures.other).replace('{n}', amount(n))
const megabytes = n => new Intl.NumberFormat(PLACE, {style: 'unit', unit: 'megabyte', maximumFractionDigits: 1}).format(n / 1e6)
const listed = words => new Intl.ListFormat(UI, {type: 'disjunction'}).format(words)
const named = (code, by = UI) => { try { return new Intl.DisplayNames([by], {type: 'language'}).of(code) } catch { return code } }
const column = name => T.columns[name] ?? name, order = n => n === 'description' ? 1 : about.own.includes(n) ? 0 : 2, ownFirst = (a, b) => order(a) - order(b)

const $ = id => document.getElementById(id)
function make(tag, given = {}, ...within) {
  const e = document.createElement(tag)
  for (const [name, value] of Object.entries(given)) value === undefined || value === false ? 0 : e.setAttribute(name, value === true ? '' : value)
  e.append(...within); return e
}

function translate() {
  document.documentElement.lang = UI; document.documentElement.dir = UI === 'ar' ? 'rtl' : 'ltr'
  for (const e of document.querySelectorAll('[data-t]')) e.textContent = T[e.dataset.t]
  for (const e of document.querySelectorAll('[data-label]')) e.setAttribute('aria-label', T[e.dataset.label])
  $('q').placeholder = T.example
}

// ---- requests
class Trouble extends Error { constructor(status, told = {}, wait = 0) { super(told.error ?? `status ${status}`); Object.assign(this, {status, told, wait}) } }

async function api(path, options = {}) {
  try {
    const answer = await fetch(`api/${path}`, options)
    if (answer.ok) return await answer.json()
    const told = await answer.json().catch(() => ({}))
    throw new Trouble(answer.status, told, Number(answer.headers.get('retry-after')) || 1)
  } catch (e) { throw e instanceof Trouble || e.name === 'AbortError' ? e : new Trouble(0) }
}

function told(e) { // an error as a translated text, and the message of the service
  const key = {0: 'offline', 403: 'forbidden', 404: 'gone', 413: 'large', 429: 'often', 504: 'slow', unreadable: 'unreadable'}[e.status] ?? (e.status < 500 ? 'refused' : 'broken')
  const more = key === 'refused' ? [e.told.error, e.told.expected && `Expected: ${e.told.expected}`, e.told.next_step].filter(Boolean).map(s => /[.!?…]$/.test(s) ? s : `${s}.`).join(' ') : ''
  return [say(key, {n: key === 'large' ? megabytes(about?.most_bytes ?? 0) : amount(e.wait ?? 0)}), ...more ? [make('span', {lang: 'en', dir: 'ltr'}, more)] : []]
}

function show(where, e) {
  if (e?.name === 'AbortError') return
  if (e?.status === 401) return locked()
  if (e instanceof Error && !(e instanceof Trouble)) console.error(e)
  where.replaceChildren(...!e ? [] : typeof e === 'string' ? [e] : told(e instanceof Trouble ? e : new Trouble(500)))
}

function locked() { // the form sends the token to the page, together with the search
  const asked = new URLSearchParams(location.search), tried = asked.has('token'); asked.delete('token')
  if (tried) { history.replaceState(history.state, '', asked.size ? `?${asked}` : location.pathname); $('wrong').textContent = T.wrong }
  for (const e of $('token').querySelectorAll('[type=hidden]')) e.remove()
  for (const [name, value] of asked) $('token').append(make('input', {type: 'hidden', name, value}))
  if (!$('token').hidden) return
  $('token').hidden = false; $('ask').hidden = $('add').hidden = true; $('one').close(); clear(); $('known').focus()
}

const READ = ['image/jpeg', 'image/png', 'image/webp', 'image/gif', 'image/bmp']
async function sendable(file) { // the browser converts files that the service does not read or that are too large
  if (READ.includes(file.type) && file.size < .9 * about.most_bytes) return file
  const seen = new Image(); seen.src = URL.createObjectURL(file)
  try { await seen.decode() } catch { throw new Trouble(READ.includes(file.type) ? 413 : 'unreadable') } finally { URL.revokeObjectURL(seen.src) }
  const small = Math.min(1, 2048 / Math.max(seen.naturalWidth, seen.naturalHeight, 1)), canvas = make('canvas', {width: Math.max(1, Math.round(seen.naturalWidth * small)), height: Math.max(1, Math.round(seen.naturalHeight * small))}), to = canvas.getContext('2d')
  to.fillStyle = '#fff'; to.fillRect(0, 0, canvas.width, canvas.height); to.drawImage(seen, 0, 0, canvas.width, canvas.height)
  const blob = await new Promise(done => canvas.toBlob(done, 'image/jpeg', .92))
  return new File([blob], 'picture.jpg', {type: 'image/jpeg'})
}

// ---- the search is in the address, except for an uploaded image, which is kept while the page is open
const EMPTY = {q: '', lang: '', like: '', upload: '', share: .5, where: ''}, PAGE = 24, LAST = 9000
const uploads = new Map() // name → {file, address}
let about, state = {...EMPTY}, running = new AbortController(), next = 0, hits = new Map(), current = ''

function fromAddress() {
  const asked = new URLSearchParams(location.search), upload = history.state?.upload ?? '', share = upload ? history.state.share : Number(asked.get('share') ?? .5)
  return {q: asked.get('q') ?? '', lang: asked.get('lang') ?? '', like: asked.get('like') ?? '', upload: uploads.has(upload) ? upload : '', share: share >= 0 && share <= 1 ? share : .5, where: asked.get('where') ?? ''}
}
function address(s) {
  const asked = new URLSearchParams()
  for (const name of ['q', 'lang', 'like', 'where']) if (s[name]) asked.set(name, s[name])
  if (s.share !== .5 && s.q && s.like) asked.set('share', s.share)
  return asked.size ? `?${asked}` : location.pathname
}
const wanted = s => Boolean(s.q || s.like || s.upload) // else the newest images are shown

function ask(change = {}) { // adds an entry to the history
  const where = readFilters()
  if (where === null) { show($('message'), T.invalid); return }
  const before = JSON.stringify(state)
  state = {...state, q: $('q').value.trim(), lang: $('lang').value, share: Number($('share').value), where: Object.keys(where).length ? JSON.stringify(where) : '', ...change}
  if (JSON.stringify(state) !== before) history.pushState({upload: state.upload, share: state.share}, '', address(state))
  fill()
  load()
}

function fill() { // sets the controls from the state
  if ($('q').value.trim() !== state.q) { $('q').value = state.q; $('q').dir = 'auto'; $('q').removeAttribute('lang') }
  $('lang').value = state.lang; if ($('lang').selectedIndex < 0) $('lang').value = ''
  $('share').value = state.share; weigh()
  const picture = state.upload ? uploads.get(state.upload).address : state.like ? `api/thumbnail?id=${encodeURIComponent(state.like)}` : ''
  $('chip').hidden = !picture; if (picture) $('preview').src = picture; else $('preview').removeAttribute('src')
  fillFilters(); document.title = [state.q, about.title].filter(Boolean).join(' – ')
}
function weigh() { $('percent').textContent = new Intl.NumberFormat(PLACE, {style: 'percent'}).format($('share').value); $('both').hidden = !$('q').value.trim() }

function clear() { $('hits').replaceChildren(); hits = new Map(); $('more').hidden = true; $('status').textContent = ''; show($('message')) }

async function load(skip = 0) { // a new search cancels the current one
  running.abort(); const mine = running = new AbortController(), s = state
  show($('message')); $('hits').setAttribute('aria-busy', 'true'); $('more').disabled = true
  const asked = new URLSearchParams({k: PAGE, skip}); if (s.q) asked.set('text', s.q)
  if (s.lang) asked.set('language', s.lang); if (s.where) asked.set('where', s.where)
  if (s.q && (s.like || s.upload)) asked.set('share', s.share)
  const options = {signal: mine.signal}
  try {
    if (s.upload) { options.method = 'POST'; options.body = new FormData(); options.body.append('picture', uploads.get(s.upload).file, 'picture') } else if (s.like) asked.set('like', s.like)
    const answer = await api(`search?${asked}`, options)
    if (running !== mine) return
    next = skip + Math.min(PAGE, about.most_results); present(answer, skip)
  } catch (e) { if (running === mine && e.name !== 'AbortError') { if (!skip) clear(); show($('message'), e) } }
  finally { if (running === mine) { $('hits').removeAttribute('aria-busy'); $('more').disabled = false } }
}

function reading(answer) { // the language of a query, how it is known, and what reads it
  const language = named(answer.language), seems = answer.seems.map(s => s === s.toUpperCase() ? say('script', {script: s[0] + s.slice(1).toLowerCase()}) : named(s)).join(', ')
  const parts = {presumed: ['presumed'], mixed: ['mixed'], unread: ['unreadBy'], recognised: answer.reader ? [] : ['read']}[answer.how] ?? []
  return [...parts, ...answer.reader ? ['readBy'] : [], ...answer.recall ? ['recall'] : []]
    .map(key => say(key, {language, seems, model: answer.reader, recall: answer.recall.replace(' to ', '–')}))
}

function present(answer, skip) {
  if (!skip) { clear(); $('hits').dir = answer.text ? answer.direction : document.documentElement.dir }
  if (answer.language && $('q').value.trim() === state.q) { $('q').lang = answer.language; $('q').dir = answer.direction }
  const fresh = answer.hits.filter(h => !hits.has(h.id)), cards = fresh.map(card)
  for (const h of fresh) hits.set(h.id, h)
  const focused = document.activeElement === $('more') || document.activeElement === document.body
  $('hits').append(...cards); $('more').hidden = !answer.more || next + PAGE > LAST
  if (skip && focused) (cards[0]?.querySelector('button') ?? $('status')).focus({preventScroll: true}) // the keyboard continues with the new results
  const parts = hits.size ? [say('shown', {pictures: pictures(hits.size)})] : [T.none]
  if (!wanted(state)) parts.unshift(say('hint', {languages: listed([...about.languages.map(l => named(l)), ...about.untaught.length ? [untaught()] : []])}))
  parts.push(...reading(answer))
  if (answer.doubt.includes('nothing')) parts.push(T.nowhere)
  else if (answer.doubt.includes('no image')) parts.push(T.unfit)
  if (answer.doubt.includes('query')) parts.push(say('unread', {words: answer.unknown.join(', ')}))
  if (answer.doubt.includes('negation')) parts.push(say('negated', {words: answer.negations.join(', ')}))
  if (answer.doubt.includes('concepts')) parts.push(say('taught', {words: answer.unknown.join(', ')}))
  if (answer.doubt.includes('images')) parts.push(T.unlike)
  $('status').textContent = parts.join(' · ')
}

const cardOf = id => $('hits').querySelector(`[data-id="${CSS.escape(id)}"]`)
const small = id => `api/thumbnail?id=${encodeURIComponent(id)}`
const apart = id => `\u2068${id}\u2069` // isolates text of another direction
const seen = h => h.facts.description || h.id // for screen readers
const scored = x => new Intl.NumberFormat(PLACE, {maximumFractionDigits: 2, minimumFractionDigits: 2}).format(x)
function card(h) {
  const below = make('span', {class: 'below', 'aria-hidden': 'true'}, ...h.score === null ? [] : [make('bdi', {}, amount(h.rank)), make('bdi', {}, scored(h.score))])
  const it = make('button', {type: 'button', class: 'hit', title: h.id, 'aria-description': h.score === null ? '' : say('place', {n: amount(h.rank), score: scored(h.score)})}, make('span', {class: 'thumb'}, make('img', {src: small(h.id), alt: seen(h), loading: 'lazy', decoding: 'async', draggable: 'false'})), below)
  it.addEventListener('click', () => open(h)); return make('li', {'data-id': h.id}, it)
}

// ---- one image
const TIMES = ['added', 'modified'], HIDDEN = ['digest']
function fact(name, value) {
  if (typeof value === 'boolean') return value ? T.yes : T.no
  if (TIMES.includes(name)) return new Intl.DateTimeFormat(PLACE, {dateStyle: 'medium', timeStyle: 'short'}).format(value * 1000)
  if (name === 'bytes') return amount(value)
  if (name === 'kind') return T.kinds[value] ?? value
  return typeof value === 'number' ? new Intl.NumberFormat(PLACE, {useGrouping: false, maximumFractionDigits: 6}).format(value) : value
}
function table(facts) {
  const known = n => facts[n] !== null && facts[n] !== '' && (n !== 'bytes' || facts.modified)  // pixels without a file
  const names = Object.keys(facts).filter(n => known(n) && !HIDDEN.includes(n)).sort(ownFirst)
  $('facts').replaceChildren(...names.map(n => make('tr', {}, make('th', {scope: 'row'}, column(n)), make('td', {}, make('bdi', {}, fact(n, facts[n]))))))
}

async function open(h) {
  current = h.id; $('name').textContent = h.id; $('large').src = small(h.id); $('large').alt = seen(h); $('original').hidden = true
  show($('said')); table(h.facts); editing(false); asking(false); $('writing').hidden = !about.may_write
  if (!$('one').open) $('one').showModal()
  $('one').scrollTop = 0
  try {
    const found = await api(`picture?id=${encodeURIComponent(h.id)}`); if (current !== h.id) return
    h.facts = found.facts; table(found.facts); $('large').alt = seen(h)
    const whole = `api/original?id=${encodeURIComponent(h.id)}`, ready = new Image()
    $('original').href = whole; $('original').hidden = !found.original
    ready.onload = () => { if (current === h.id) $('large').src = ready.src }; ready.src = found.original ? whole : `${small(h.id)}&large=true`
  } catch (e) { if (current === h.id) show($('said'), e) }
}

function editing(on) { $('own').hidden = !on; $('edit').setAttribute('aria-expanded', on); if (on) { asking(false); forms(); $('own').querySelector('input, select, textarea')?.focus() } }
function asking(on) { $('sure').hidden = !on; if (on) { editing(false); $('no').focus() } }
function forms() {
  const facts = hits.get(current)?.facts ?? {}
  $('own').replaceChildren(...about.own.map(n => {
    const kind = about.columns[n], value = facts[n] ?? '', id = `own-${n}`
    const field = kind === 'flag' ? make('select', {id, name: n}, ...[['', T.unknown], ['true', T.yes], ['false', T.no]].map(([v, t]) => make('option', {value: v}, t))) : n === 'description' ? make('textarea', {id, name: n, rows: 3, dir: 'auto'}) : kind === 'text' ? make('input', {id, name: n, dir: 'auto', autocomplete: 'off'}) : make('input', {id, name: n, type: 'number', step: kind === 'integer' ? 1 : 'any'})
    field.value = String(value); return make('label', {for: id}, column(n), field)
  }), make('div', {class: 'line'}, make('button', {class: 'main'}, T.save)))
}
async function save() {
  const id = current, before = hits.get(id)?.facts ?? {}, facts = {}
  for (const n of about.own) {
    const said = $(`own-${n}`).value, kind = about.columns[n], now = kind === 'text' ? (said === '' && (before[n] ?? '') === '' ? before[n] ?? null : said) : said === '' ? null : kind === 'flag' ? said === 'true' : Number(said)
    if (now !== (before[n] ?? null)) facts[n] = now
  }
  try {
    if (Object.keys(facts).length) await api(`picture?id=${encodeURIComponent(id)}`, {method: 'PATCH', headers: {'content-type': 'application/json'}, body: JSON.stringify({facts})})
    if (hits.has(id)) { const h = hits.get(id); Object.assign(h.facts, facts); cardOf(id).querySelector('img').alt = seen(h) }
    if (current === id) { table({...before, ...facts}); editing(false); $('edit').focus(); show($('said'), T.saved) }
  } catch (e) { show($('said'), e) }
}
async function remove() {
  const id = current; $('yes').disabled = true
  try {
    await api(`picture?id=${encodeURIComponent(id)}`, {method: 'DELETE'})
    const it = cardOf(id), near = it?.nextElementSibling ?? it?.previousElementSibling; if (hits.delete(id)) next--; it?.remove() // later results move up
    $('one').close(); $('status').textContent = say('removed', {id: apart(id)}); (near?.querySelector('button') ?? $('status')).focus(); count()
  } catch (e) { show($('said'), e) }
  finally { $('yes').disabled = false }
}

// ---- adding images
async function add(files) {
  if (!files.length) return
  const bad = [], stop = new AbortController(); let done = 0
  $('adding').hidden = $('running').hidden = false; $('add').disabled = true; $('failed').replaceChildren(); $('progress').max = files.length; $('progress').value = 0
  $('stop').onclick = () => stop.abort()
  for (let i = 0; i < files.length && !stop.signal.aborted;) {
    $('progressed').textContent = say('adding', {i: amount(i + 1), n: amount(files.length)})
    try {
      const body = new FormData(); body.append('picture', await sendable(files[i]), 'picture')
      await api('pictures', {method: 'POST', body, signal: stop.signal}); done++
    } catch (e) {
      if (e.name === 'AbortError') break
      if (e.status === 401) { locked(); break }
      if (e.status === 429) { $('progressed').textContent = say('waiting', {n: amount(e.wait)}); await new Promise(go => { const timer = setTimeout(go, e.wait * 1000); stop.signal.addEventListener('abort', () => { clearTimeout(timer); go() }) }); continue }
      bad.push(files[i].name); $('failed').append(make('li', {}, make('bdi', {}, files[i].name), ': ', ...told(e instanceof Trouble ? e : new Trouble(500))))
    }
    $('progress').value = ++i
  }
  $('progressed').textContent = say('added', {pictures: pictures(done)}); $('running').hidden = true; $('add').disabled = false; count()
}
async function count() { try { about = await api('gallery'); $('size').textContent = pictures(about.pictures) } catch (e) { show($('message'), e) } }

// ---- filters: one field per column; other conditions are kept in `extra`
let extra = {}
const kindOf = n => n === 'kind' ? 'kind' : TIMES.includes(n) ? 'date' : about.columns[n]
const day = x => { const d = new Date(x * 1000), two = n => String(n).padStart(2, '0'); return Number.isNaN(d.getTime()) ? '' : `${String(d.getFullYear()).padStart(4, '0')}-${two(d.getMonth() + 1)}-${two(d.getDate())}` }
function choice(name, pairs, given = {}) { return make('select', {name, ...given}, ...pairs.map(([value, text]) => make('option', {value}, text))) }
function layFilters() {
  const names = Object.keys(about.columns).filter(n => !HIDDEN.includes(n)).sort(ownFirst)
  $('columns').replaceChildren(...names.map(n => {
    const kind = kindOf(n), label = t => ({'aria-label': `${column(n)}: ${t}`}), line = make('div', {class: 'line'})
    if (kind === 'text') line.append(choice('how', [['is', T.is], ['starts', T.starts]], {class: 'how', ...label(`${T.is} / ${T.starts}`)}), make('input', {name: 'text', dir: 'auto', autocomplete: 'off', placeholder: 'a, b, c', ...label(T.values)}))
    else if (kind === 'flag') line.append(choice('pick', [['', T.any], ['true', T.yes], ['false', T.no]], label(`${T.yes} / ${T.no}`)))
    else if (kind === 'kind') line.append(choice('pick', [['', T.any], ['picture', T.kinds.picture], ['clip', T.kinds.clip]], label(T.any)))
    else for (const end of ['from', 'to']) line.append(make('input', {name: end, type: kind === 'date' ? 'date' : 'number', step: kind === 'date' ? false : kind === 'integer' ? 1 : 'any', placeholder: T[end], ...label(T[end])}))
    return make('fieldset', {'data-column': n}, make('legend', {}, column(n)), line)
  }))
  $('filters').hidden = false
}
const field = (n, name) => $('columns').querySelector(`[data-column="${n}"] [name=${name}]`)
function readColumn(n) { // undefined: no condition
  const kind = kindOf(n)
  if (kind === 'text') {
    const said = field(n, 'text').value.trim()
    if (field(n, 'how').value === 'starts') return said ? {starts: said} : undefined
    const values = said.split(/[,،，、]/).map(v => v.trim()).filter(Boolean); return values.length ? values : undefined
  }
  if (kind === 'kind' || kind === 'flag') { const said = field(n, 'pick').value; return said === '' ? undefined : [kind === 'flag' ? said === 'true' : said] }
  const range = {}
  for (const end of ['from', 'to']) {
    const f = field(n, end); if (f.value === '') continue
    if (kind === 'date') { const [y, m, d] = f.value.split('-').map(Number), at = new Date(y, m - 1, d + (end === 'to')); range[end] = at.getTime() / 1000 - (end === 'to' ? .001 : 0) } else range[end] = Number(f.value)
  }
  return Object.keys(range).length ? range : undefined
}
function writeColumn(n, asked) {
  const kind = kindOf(n), only = asked?.length === 1 ? asked[0] : ''
  if (kind === 'text') { field(n, 'how').value = asked?.starts !== undefined ? 'starts' : 'is'; field(n, 'text').value = asked?.starts ?? (Array.isArray(asked) ? asked.join(', ') : '') }
  else if (kind === 'kind' || kind === 'flag') field(n, 'pick').value = String(only)
  else for (const end of ['from', 'to']) { const v = asked?.[end]; field(n, end).value = typeof v !== 'number' ? '' : kind === 'date' ? day(v) : v }
}
const plain = asked => asked !== null && typeof asked === 'object' ? Array.isArray(asked) ? asked : Object.fromEntries(['starts', 'from', 'to', ...Object.keys(asked)].filter(k => k in asked).map(k => [k, asked[k]])) : [asked]
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b)
function fillFilters() {
  let asked = {}; try { asked = JSON.parse(state.where || '{}') } catch { }
  if (asked === null || typeof asked !== 'object' || Array.isArray(asked)) asked = {}
  extra = {}; const shown = [...$('columns').children].map(f => f.dataset.column)
  for (const n of shown) {
    const want = n in asked ? plain(asked[n]) : undefined; if (same(readColumn(n), want)) continue
    writeColumn(n, want); if (!same(readColumn(n), want)) { writeColumn(n); extra[n] = asked[n] }
  }
  for (const n of Object.keys(asked)) if (!shown.includes(n)) extra[n] = asked[n]
  $('extra').hidden = !Object.keys(extra).length; $('other').textContent = JSON.stringify(extra)
  const n = Object.keys(asked).length; $('active').textContent = n ? say('active', {n: amount(n)}) : ''; if (n) $('filters').open = true
}
function readFilters() { // null: an invalid number
  if ([...$('columns').querySelectorAll('input')].some(i => !i.validity.valid)) return null
  const found = {...extra}
  for (const f of $('columns').children) { const asked = readColumn(f.dataset.column); if (asked !== undefined) found[f.dataset.column] = asked }
  return found
}

// ---- events
async function byPicture(file) {
  if (!file) return
  try { const ready = await sendable(file), name = String(Math.random()); uploads.set(name, {file: ready, address: URL.createObjectURL(ready)}); ask({upload: name, like: '', share: .5}) } catch (e) { show($('message'), e) }
}
const picturesOf = given => [...given?.files ?? []].filter(f => f.type.startsWith('image/'))

function listen() {
  const on = (id, event, act) => $(id).addEventListener(event, act)
  on('ask', 'submit', e => { e.preventDefault(); ask() }); on('own', 'submit', e => { e.preventDefault(); save() })
  on('lang', 'change', () => ask()); on('share', 'change', () => ask()); on('share', 'input', weigh)
  on('columns', 'change', () => ask())
  on('clear', 'click', () => { extra = {}; for (const f of $('columns').children) writeColumn(f.dataset.column); ask() })
  on('q', 'input', () => { $('q').dir = 'auto'; $('q').removeAttribute('lang'); weigh() })
  on('by', 'click', () => $('picture').click()); on('picture', 'change', () => { byPicture($('picture').files[0]); $('picture').value = '' })
  on('forget', 'click', () => { ask({like: '', upload: '', share: .5}); $('q').focus() }); on('more', 'click', () => load(next))
  on('similar', 'click', () => { $('one').close(); $('q').value = ''; ask({q: '', like: current, upload: '', share: .5}); $('status').focus(); scrollTo(0, 0) })
  on('close', 'click', () => $('one').close()); on('one', 'click', e => { if (e.target === $('one')) $('one').close() })
  on('edit', 'click', () => editing($('own').hidden)); on('remove', 'click', () => asking($('sure').hidden)); on('no', 'click', () => { asking(false); $('remove').focus() }); on('yes', 'click', remove)
  on('add', 'click', () => $('added').click()); on('added', 'change', () => { const files = [...$('added').files]; $('added').value = ''; add(files) })
  addEventListener('popstate', () => { $('one').close(); state = fromAddress(); fill(); load() })
  addEventListener('keydown', e => { if (e.key === '/' && !e.ctrlKey && !e.metaKey && !e.altKey && !$('one').open && !e.target.closest('input, select, textarea')) { e.preventDefault(); $('q').focus(); $('q').select() } })
  $('one').addEventListener('keydown', e => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[e.key] * (document.documentElement.dir === 'rtl' ? -1 : 1)
    if (!step || e.target.closest('input, select, textarea')) return
    const ids = [...hits.keys()], other = hits.get(ids[ids.indexOf(current) + step]); if (other) { e.preventDefault(); open(other) }
  })
  addEventListener('paste', e => { const found = picturesOf(e.clipboardData); if (found.length && !$('one').open) { e.preventDefault(); byPicture(found[0]) } })
  addEventListener('dragover', e => { if (e.dataTransfer?.types.includes('Files')) { e.preventDefault(); document.body.classList.add('dropping') } })
  addEventListener('dragleave', e => { if (!e.relatedTarget) document.body.classList.remove('dropping') })
  addEventListener('drop', e => { document.body.classList.remove('dropping'); if (!e.dataTransfer?.types.includes('Files')) return; e.preventDefault(); const found = picturesOf(e.dataTransfer); found.length ? byPicture(found[0]) : show($('message'), new Trouble('unreadable')) })
}
const untaught = () => say('untaught', {n: amount(about.untaught.length)})

async function start() {
  translate()
  try { about = await api('gallery') } catch (e) { show($('message'), e); if (e.status !== 401) $('ask').addEventListener('submit', e => { e.preventDefault(); location.reload() }); return }
  $('title').textContent = about.title; $('size').textContent = pictures(about.pictures); $('add').hidden = !about.may_write
  const called = l => named(l) === named(l, l) ? named(l) : `${named(l)} · ${named(l, l)}`
  const options = codes => [...codes].sort((a, b) => named(a).localeCompare(named(b), UI)).map(l => make('option', {value: l}, called(l)))
  $('lang').append(make('option', {value: ''}, T.recognise), ...options(about.languages))
  if (about.untaught.length) $('lang').append(make('optgroup', {label: untaught()}, ...options(about.untaught)))
  layFilters(); listen(); state = fromAddress(); history.replaceState({upload: state.upload, share: state.share}, '', address(state)); fill()
  load(); if (!wanted(state) && matchMedia('(pointer: fine)').matches) $('q').focus()
}
start()
